"""Webhooks: tasks that call a URL, and the verification of calls by the receiver.

::

    job = Job(callback_url="https://example.com/hook", payload={"order": 42}, max_attempts=6)
    kit.queue(job.queue_name).enqueue_many([job.task()])

    verify(request.body, request.headers, secret="…")        # in the receiver

`eventkit.webhooks.call` is for workers and needs ``pip install 'eventkit-db[server]'``; the rest does not.
"""

from .job import Call, Job, call_of
from .signing import Replays, SignatureRefused, verify

__all__ = ["Call", "Job", "Replays", "SignatureRefused", "call_of", "verify"]
