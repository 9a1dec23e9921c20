"""Durable event streams, a task queue and notifications inside the database an application already has.

::

    kit = eventkit.connect("sqlite:///shop.db")
    kit.stream("orders").publish({"id": 42})

`eventkit.protocols` is the page to read first.
"""

from .codec import Undecodable
from .copying import copy
from .errors import (
    Busy,
    Closed,
    CopyDiffers,
    DatabaseReplaced,
    Disconnected,
    EventkitError,
    ForeignTransaction,
    LockHeld,
    NotMigrated,
    QueueFull,
    TaskFailed,
    TimedOut,
    Truncated,
    Unavailable,
    UnknownBackend,
)
from .handling import Permanent, Retry
from .kit import connect, connect_async
from .protocols import (
    AsyncEventKit,
    AsyncEventStream,
    AsyncInbox,
    AsyncLock,
    AsyncNotificationChannel,
    AsyncOutbox,
    AsyncResults,
    AsyncSchedules,
    AsyncTaskQueue,
    EventKit,
    EventStream,
    Inbox,
    Lock,
    NotificationChannel,
    Outbox,
    Results,
    Schedules,
    TaskQueue,
)
from .records import (
    Consumer,
    Enqueued,
    Event,
    Fire,
    Message,
    NewEvent,
    NewTask,
    Notification,
    OutboxStats,
    QueueStats,
    Schedule,
    Task,
    TaskInfo,
)
from .retry import Delays, Exponential, Fixed, Linear
from .telemetry import tracing

__all__ = [
    "AsyncEventKit",
    "AsyncEventStream",
    "AsyncInbox",
    "AsyncLock",
    "AsyncNotificationChannel",
    "AsyncOutbox",
    "AsyncResults",
    "AsyncSchedules",
    "AsyncTaskQueue",
    "Busy",
    "Closed",
    "Consumer",
    "CopyDiffers",
    "DatabaseReplaced",
    "Delays",
    "Disconnected",
    "Enqueued",
    "Event",
    "EventKit",
    "EventStream",
    "EventkitError",
    "Exponential",
    "Fire",
    "Fixed",
    "ForeignTransaction",
    "Inbox",
    "Linear",
    "Lock",
    "LockHeld",
    "Message",
    "NewEvent",
    "NewTask",
    "NotMigrated",
    "Notification",
    "NotificationChannel",
    "Outbox",
    "OutboxStats",
    "Permanent",
    "QueueFull",
    "QueueStats",
    "Results",
    "Retry",
    "Schedule",
    "Schedules",
    "Task",
    "TaskFailed",
    "TaskInfo",
    "TaskQueue",
    "TimedOut",
    "Truncated",
    "Unavailable",
    "Undecodable",
    "UnknownBackend",
    "connect",
    "connect_async",
    "copy",
    "tracing",
]
