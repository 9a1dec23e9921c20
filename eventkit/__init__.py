"""Durable event streams, a task queue and notifications inside the database an application already has.

::

    kit = eventkit.connect("sqlite:///shop.db")
    kit.stream("orders").publish({"id": 42})

Read `eventkit.protocols` first.

Names are imported at their first use, so that programs import no more than they need.
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
    from .handling import Permanent, Retry, Snooze
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
    from .retry import Delays, Exponential, Fixed, Linear
    from .stats import (
        DeadLetters,
        HeldLock,
        LimitInfo,
        Maintained,
        OutboxStats,
        Overview,
        QueueStats,
        ScheduleStats,
        TopicStats,
        WorkerInfo,
    )
    from .telemetry import tracing
    from .transfer import copy
    from .values import (
        ChannelSettings,
        Consumer,
        Enqueued,
        Event,
        Fire,
        InboxSettings,
        Message,
        NewEvent,
        NewTask,
        Notification,
        QueueSettings,
        Schedule,
        StreamSettings,
        Task,
        TaskInfo,
    )

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
    "handling": (
        "Permanent",
        "Retry",
        "Snooze",
    ),
    "kit": (
        "connect",
        "connect_async",
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
    "retry": (
        "Delays",
        "Exponential",
        "Fixed",
        "Linear",
    ),
    "stats": (
        "DeadLetters",
        "HeldLock",
        "LimitInfo",
        "Maintained",
        "OutboxStats",
        "Overview",
        "QueueStats",
        "ScheduleStats",
        "TopicStats",
        "WorkerInfo",
    ),
    "telemetry": ("tracing",),
    "transfer": ("copy",),
    "values": (
        "ChannelSettings",
        "Consumer",
        "Enqueued",
        "Event",
        "Fire",
        "InboxSettings",
        "Message",
        "NewEvent",
        "NewTask",
        "Notification",
        "QueueSettings",
        "Schedule",
        "StreamSettings",
        "Task",
        "TaskInfo",
    ),
}
"""The module of each name, with the same names as the imports above."""

_MODULES = {name: module for module, names in _PLACES.items() for name in names}

if not TYPE_CHECKING:  # A type checker would accept any name otherwise.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'eventkit' has no {name!r}")
        value = globals()[name] = getattr(import_module(f"eventkit.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
