"""Durable event streams, a task queue and notifications inside the database an application already has.

::

    kit = eventkit.connect("sqlite:///shop.db")
    kit.stream("orders").publish({"id": 42})

`eventkit.protocols` is the page to read first.

What is named here is imported when it is first asked for, so that whoever needs little waits for little.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .app import (
        App,
        AsyncApp,
        AsyncTaskContext,
        AsyncTaskFunction,
        AsyncTaskHandle,
        Progress,
        TaskContext,
        TaskFunction,
        TaskHandle,
    )
    from .codec import Undecodable
    from .copying import copy
    from .errors import (
        Busy,
        Closed,
        CopyDiffers,
        DatabaseError,
        DatabaseReplaced,
        Disconnected,
        EventkitError,
        ForeignTransaction,
        LeaseLost,
        LockHeld,
        NotMigrated,
        QueueFull,
        TaskCancelled,
        TaskFailed,
        TimedOut,
        Truncated,
        Unavailable,
        UnknownBackend,
    )
    from .findings import DeadLetters, Maintained
    from .handling import Permanent, Retry, Snooze
    from .kit import connect, connect_async
    from .looks import LimitInfo, WorkerInfo
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
        Schedule,
        Task,
        TaskInfo,
    )
    from .retry import Delays, Exponential, Fixed, Linear
    from .settings import ChannelSettings, InboxSettings, QueueSettings, StreamSettings
    from .stats import HeldLock, OutboxStats, Overview, QueueStats, ScheduleStats, TopicStats
    from .telemetry import tracing

__all__ = [
    "App",
    "AsyncApp",
    "AsyncEventKit",
    "AsyncEventStream",
    "AsyncInbox",
    "AsyncLock",
    "AsyncNotificationChannel",
    "AsyncOutbox",
    "AsyncResults",
    "AsyncSchedules",
    "AsyncTaskContext",
    "AsyncTaskFunction",
    "AsyncTaskHandle",
    "AsyncTaskQueue",
    "Busy",
    "ChannelSettings",
    "Closed",
    "Consumer",
    "CopyDiffers",
    "DatabaseError",
    "DatabaseReplaced",
    "DeadLetters",
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
    "HeldLock",
    "Inbox",
    "InboxSettings",
    "LeaseLost",
    "LimitInfo",
    "Linear",
    "Lock",
    "LockHeld",
    "Maintained",
    "Message",
    "NewEvent",
    "NewTask",
    "NotMigrated",
    "Notification",
    "NotificationChannel",
    "Outbox",
    "OutboxStats",
    "Overview",
    "Permanent",
    "Progress",
    "QueueFull",
    "QueueSettings",
    "QueueStats",
    "Results",
    "Retry",
    "Schedule",
    "ScheduleStats",
    "Schedules",
    "Snooze",
    "StreamSettings",
    "Task",
    "TaskCancelled",
    "TaskContext",
    "TaskFailed",
    "TaskFunction",
    "TaskHandle",
    "TaskInfo",
    "TaskQueue",
    "TimedOut",
    "TopicStats",
    "Truncated",
    "Unavailable",
    "Undecodable",
    "UnknownBackend",
    "WorkerInfo",
    "connect",
    "connect_async",
    "copy",
    "tracing",
]

_PLACES = {
    "app": (
        "App",
        "AsyncApp",
        "AsyncTaskContext",
        "AsyncTaskFunction",
        "AsyncTaskHandle",
        "Progress",
        "TaskContext",
        "TaskFunction",
        "TaskHandle",
    ),
    "codec": ("Undecodable",),
    "copying": ("copy",),
    "errors": (
        "Busy",
        "Closed",
        "CopyDiffers",
        "DatabaseError",
        "DatabaseReplaced",
        "Disconnected",
        "EventkitError",
        "ForeignTransaction",
        "LeaseLost",
        "LockHeld",
        "NotMigrated",
        "QueueFull",
        "TaskCancelled",
        "TaskFailed",
        "TimedOut",
        "Truncated",
        "Unavailable",
        "UnknownBackend",
    ),
    "findings": ("DeadLetters", "Maintained"),
    "handling": (
        "Permanent",
        "Retry",
        "Snooze",
    ),
    "kit": (
        "connect",
        "connect_async",
    ),
    "looks": (
        "LimitInfo",
        "WorkerInfo",
    ),
    "protocols": (
        "AsyncEventKit",
        "AsyncEventStream",
        "AsyncInbox",
        "AsyncLock",
        "AsyncNotificationChannel",
        "AsyncOutbox",
        "AsyncResults",
        "AsyncSchedules",
        "AsyncTaskQueue",
        "EventKit",
        "EventStream",
        "Inbox",
        "Lock",
        "NotificationChannel",
        "Outbox",
        "Results",
        "Schedules",
        "TaskQueue",
    ),
    "records": (
        "Consumer",
        "Enqueued",
        "Event",
        "Fire",
        "Message",
        "NewEvent",
        "NewTask",
        "Notification",
        "Schedule",
        "Task",
        "TaskInfo",
    ),
    "retry": (
        "Delays",
        "Exponential",
        "Fixed",
        "Linear",
    ),
    "settings": (
        "ChannelSettings",
        "InboxSettings",
        "QueueSettings",
        "StreamSettings",
    ),
    "stats": (
        "HeldLock",
        "OutboxStats",
        "Overview",
        "QueueStats",
        "ScheduleStats",
        "TopicStats",
    ),
    "telemetry": ("tracing",),
}
"""Which module each name is of: what is imported above, for those who run it."""

_MODULES = {name: module for module, names in _PLACES.items() for name in names}

if not TYPE_CHECKING:  # Or any name would be one.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'eventkit' has no {name!r}")
        value = globals()[name] = getattr(import_module(f"eventkit.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
