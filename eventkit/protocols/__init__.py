"""The page to read first: what eventkit promises, as types.

Words.  A *payload* is any JSON value.  A *key* orders or makes unique.  A *lease* is the right to a task
until a moment.  An *attempt* is the number of the current run, from 1.  An *offset* is a position in a
stream, an integer.  *tx* is the caller's own transaction.  Durations are seconds, as a number or a
timedelta; moments are timezone-aware datetimes.

`eventkit.connect(url)` gives an `EventKit`, whose calls block; `eventkit.connect_async(url)` an
`AsyncEventKit`, whose calls are awaited.  Both have the same names, arguments and results.

With ``tx=``, a call runs on the caller's connection and inside the caller's transaction: it commits and
rolls back with it.  Without, it is a transaction of its own, committed when it returns.

Read on in `kit`, then in `streams`, `queues` and `channels`; each has both flavours, one after the other.  `backend` is
for authors of backends.
"""

from .backend import AsyncConnection, Backend, Bulk, Care, Connection
from .channels import AsyncNotificationChannel, NotificationChannel
from .kit import AsyncEventKit, EventKit
from .locks import AsyncLock, Lock
from .outboxes import AsyncInbox, AsyncOutbox, Inbox, Outbox
from .queues import AsyncTaskQueue, TaskQueue
from .results import AsyncResults, Results
from .schedules import AsyncSchedules, Schedules
from .streams import AsyncEventStream, EventStream
from .subscriptions import AsyncSubscription, Subscription

__all__ = [
    "AsyncConnection",
    "AsyncEventKit",
    "AsyncEventStream",
    "AsyncInbox",
    "AsyncLock",
    "AsyncNotificationChannel",
    "AsyncOutbox",
    "AsyncResults",
    "AsyncSchedules",
    "AsyncSubscription",
    "AsyncTaskQueue",
    "Backend",
    "Bulk",
    "Care",
    "Connection",
    "EventKit",
    "EventStream",
    "Inbox",
    "Lock",
    "NotificationChannel",
    "Outbox",
    "Results",
    "Schedules",
    "Subscription",
    "TaskQueue",
]
