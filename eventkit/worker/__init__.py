"""The worker: it runs the tasks that an application declares.

::

    app.worker(concurrency=100, queues=["emails", ("reports", 2)]).run()
"""

from .lifecycle import WorkerSettings
from .worker import Worker

__all__ = ["Worker", "WorkerSettings"]
