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
    __all__: list[str]
    from .app import App as App
    from .app import AsyncApp as AsyncApp
    from .app import AsyncTaskContext as AsyncTaskContext
    from .app import AsyncTaskFunction as AsyncTaskFunction
    from .app import AsyncTaskHandle as AsyncTaskHandle
    from .app import Progress as Progress
    from .app import TaskContext as TaskContext
    from .app import TaskFunction as TaskFunction
    from .app import TaskHandle as TaskHandle
    from .codec import Undecodable as Undecodable
    from .errors import Busy as Busy
    from .errors import Closed as Closed
    from .errors import CopyDiffers as CopyDiffers
    from .errors import DatabaseError as DatabaseError
    from .errors import DatabaseReplaced as DatabaseReplaced
    from .errors import Disconnected as Disconnected
    from .errors import EventkitError as EventkitError
    from .errors import ForeignTransaction as ForeignTransaction
    from .errors import LeaseLost as LeaseLost
    from .errors import LockHeld as LockHeld
    from .errors import NotMigrated as NotMigrated
    from .errors import QueueFull as QueueFull
    from .errors import TaskCancelled as TaskCancelled
    from .errors import TaskFailed as TaskFailed
    from .errors import TimedOut as TimedOut
    from .errors import Truncated as Truncated
    from .errors import Unavailable as Unavailable
    from .errors import UnknownBackend as UnknownBackend
    from .handling import Permanent as Permanent
    from .handling import Retry as Retry
    from .handling import Snooze as Snooze
    from .kit import connect as connect
    from .kit import connect_async as connect_async
    from .protocols import AsyncEventKit as AsyncEventKit
    from .protocols import AsyncEventStream as AsyncEventStream
    from .protocols import AsyncInbox as AsyncInbox
    from .protocols import AsyncLock as AsyncLock
    from .protocols import AsyncNotificationChannel as AsyncNotificationChannel
    from .protocols import AsyncOutbox as AsyncOutbox
    from .protocols import AsyncResults as AsyncResults
    from .protocols import AsyncSchedules as AsyncSchedules
    from .protocols import AsyncTaskQueue as AsyncTaskQueue
    from .protocols import EventKit as EventKit
    from .protocols import EventStream as EventStream
    from .protocols import Inbox as Inbox
    from .protocols import Lock as Lock
    from .protocols import NotificationChannel as NotificationChannel
    from .protocols import Outbox as Outbox
    from .protocols import Results as Results
    from .protocols import Schedules as Schedules
    from .protocols import TaskQueue as TaskQueue
    from .retry import Delays as Delays
    from .retry import Exponential as Exponential
    from .retry import Fixed as Fixed
    from .retry import Linear as Linear
    from .telemetry import tracing as tracing
    from .transfer import copy as copy
    from .values import ChannelSettings as ChannelSettings
    from .values import Consumer as Consumer
    from .values import DeadTasks as DeadTasks
    from .values import Enqueued as Enqueued
    from .values import Event as Event
    from .values import Fire as Fire
    from .values import HeldLock as HeldLock
    from .values import InboxSettings as InboxSettings
    from .values import LimitInfo as LimitInfo
    from .values import Maintained as Maintained
    from .values import Message as Message
    from .values import NewEvent as NewEvent
    from .values import NewTask as NewTask
    from .values import Notification as Notification
    from .values import OutboxStats as OutboxStats
    from .values import Overview as Overview
    from .values import QueueSettings as QueueSettings
    from .values import QueueStats as QueueStats
    from .values import Schedule as Schedule
    from .values import ScheduleStats as ScheduleStats
    from .values import StreamSettings as StreamSettings
    from .values import StreamStats as StreamStats
    from .values import Task as Task
    from .values import TaskInfo as TaskInfo
    from .values import WorkerInfo as WorkerInfo

_PLACES = {
    "app": (
        "App AsyncApp AsyncTaskContext AsyncTaskFunction AsyncTaskHandle Progress TaskContext TaskFunction TaskHandle"
    ),
    "codec": "Undecodable",
    "errors": (
        "Busy Closed CopyDiffers DatabaseError DatabaseReplaced Disconnected EventkitError ForeignTransaction "
        "LeaseLost LockHeld NotMigrated QueueFull TaskCancelled TaskFailed TimedOut Truncated Unavailable "
        "UnknownBackend"
    ),
    "handling": "Permanent Retry Snooze",
    "kit": "connect connect_async",
    "protocols": (
        "AsyncEventKit AsyncEventStream AsyncInbox AsyncLock AsyncNotificationChannel AsyncOutbox "
        "AsyncResults AsyncSchedules AsyncTaskQueue EventKit EventStream Inbox Lock NotificationChannel "
        "Outbox Results Schedules TaskQueue"
    ),
    "retry": "Delays Exponential Fixed Linear",
    "telemetry": "tracing",
    "transfer": "copy",
    "values": (
        "ChannelSettings Consumer DeadTasks Enqueued Event Fire HeldLock InboxSettings LimitInfo Maintained "
        "Message NewEvent NewTask Notification OutboxStats Overview QueueSettings QueueStats Schedule "
        "ScheduleStats StreamSettings StreamStats Task TaskInfo WorkerInfo"
    ),
}
"""The names of each module, as imported above."""

_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}

if not TYPE_CHECKING:  # A type checker would accept any name otherwise.
    __all__ = sorted(_MODULES)

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'eventkit' has no {name!r}")
        value = globals()[name] = getattr(import_module(f"eventkit.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
