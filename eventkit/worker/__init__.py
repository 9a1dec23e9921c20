"""The worker: it runs the tasks that an application declares.

::

    app.worker(concurrency=100, queues=["emails", ("reports", 2)]).run()

Start reading at `worker`.  `claims` claims tasks and keeps their leases, `executor` runs them, and `endings` stores
their outcomes.
"""

from .lifecycle import WorkerSettings
from .worker import Worker

__all__ = ["Worker", "WorkerSettings"]
