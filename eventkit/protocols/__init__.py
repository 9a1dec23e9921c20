"""The public interface of eventkit as types: read this page first.

Terms.  A *payload* is a JSON value.  A *key* orders events, or makes a task unique.  A *lease* is a worker's right to a
task until a given time.  An *attempt* is the number of the current run, starting at 1.  An *offset* is a position in a
stream, an integer.  *tx* is the caller's own transaction.  Durations are seconds, as a number or a timedelta; times are
timezone-aware datetimes.

`eventkit.connect(url)` returns an `EventKit`, whose calls block; `eventkit.connect_async(url)` returns an
`AsyncEventKit`, whose calls are awaited.  Both have the same names, arguments and results.

With ``tx=``, a call runs on the caller's connection and inside the caller's transaction: it commits and rolls back with
it.  Without, the call is a transaction of its own, committed when it returns.

Continue with `kit`, then `streams`, `queues` and `channels`; each has the sync class first, then the async one.
`backend` is for authors of backends.
"""

from .backend import AsyncConnection, Backend, Bulk, Care, Connection
from .coordination import AsyncLock, AsyncResults, AsyncSchedules, Lock, Results, Schedules
from .iterators import AsyncSubscription, Subscription
from .kit import AsyncEventKit, EventKit
from .outboxes import AsyncInbox, AsyncOutbox, Inbox, Outbox
from .queues import AsyncTaskQueue, TaskQueue
from .streams import AsyncEventStream, AsyncNotificationChannel, EventStream, NotificationChannel

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
