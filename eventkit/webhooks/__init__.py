"""Jobs that are calls of a URL, and verifying them where they arrive.

::

    job = Job(callback_url="https://example.com/hook", payload={"order": 42}, max_retries=5)
    kit.queue(job.queue_name).enqueue_many([job.task()])

    verify(request.body, request.headers, secret="…")        # where it arrives

`calling` is for workers, and needs ``pip install 'eventkit-db[server]'``; nothing else here does.
"""

from ..signatures import SignatureRefused
from .job import Call, Job, call_of
from .receiving import Replays, verify

__all__ = ["Call", "Job", "Replays", "SignatureRefused", "call_of", "verify"]
