"""The worker: it runs the tasks that an application declares.

::

    app.worker(concurrency=100, queues=["emails", ("reports", 2)]).run()

Start reading at `worker`.  `claims` claims tasks, `executor` runs them, `endings` decides their outcomes, and `leases`
stores these in the database.
"""

from .settings import WorkerSettings
from .worker import Worker

__all__ = ["Worker", "WorkerSettings"]
