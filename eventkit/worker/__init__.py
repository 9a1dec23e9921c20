"""Running what an application has declared.

::

    app.worker(concurrency=100, queues=["emails", ("reports", 2)]).run()

`worker` is where it begins.  `intake` claims, `crew` runs, `endings` says what it came to, `acks` tells the database.
"""

from .settings import WorkerSettings
from .worker import Worker

__all__ = ["Worker", "WorkerSettings"]
