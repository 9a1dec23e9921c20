"""Webhooks: tasks that call a URL, and the verification of calls by the receiver.

::

    webhook = Webhook(callback_url="https://example.com/hook", payload={"order": 42}, max_attempts=6)
    kit.queue(webhook.queue_name).enqueue_many([webhook.task()])

    verify(request.body, request.headers, secret="…")        # in the receiver

`eventkit.webhooks.call` is for workers and needs ``pip install 'eventkit-db[server]'``; the rest does not.
"""

from .signing import Replays, SignatureRefused, verify
from .webhook import Call, Webhook, call_of

__all__ = ["Call", "Replays", "SignatureRefused", "Webhook", "call_of", "verify"]
