"""The names that `import eventkit` gives.  `__init__.py` reads each with its module from the lines below."""

from .app import App as App
from .app import AsyncApp as AsyncApp
from .app import Blueprint as Blueprint
from .app import Progress as Progress
from .app import TaskContext as TaskContext
from .app import TaskHandle as TaskHandle
from .errors import Busy as Busy
from .errors import Closed as Closed
from .errors import DatabaseError as DatabaseError
from .errors import DatabaseReplaced as DatabaseReplaced
from .errors import Disconnected as Disconnected
from .errors import EventkitError as EventkitError
from .errors import ForeignTransaction as ForeignTransaction
from .errors import KeyConflict as KeyConflict
from .errors import LeaseLost as LeaseLost
from .errors import LockHeld as LockHeld
from .errors import NotMigrated as NotMigrated
from .errors import QueueFull as QueueFull
from .errors import TaskCancelled as TaskCancelled
from .errors import TaskFailed as TaskFailed
from .errors import TimedOut as TimedOut
from .errors import Truncated as Truncated
from .errors import Unavailable as Unavailable
from .handling import Permanent as Permanent
from .handling import Retry as Retry
from .handling import Snooze as Snooze
from .kit import connect as connect
from .kit import connect_async as connect_async
from .protocols import AsyncEventKit as AsyncEventKit
from .protocols import EventKit as EventKit
from .protocols import EventStream as EventStream
from .protocols import Inbox as Inbox
from .protocols import Lock as Lock
from .protocols import NotificationChannel as NotificationChannel
from .protocols import Outbox as Outbox
from .protocols import Results as Results
from .protocols import Schedules as Schedules
from .protocols import TaskQueue as TaskQueue
from .retry import Exponential as Exponential
from .retry import Fixed as Fixed
from .retry import Linear as Linear
from .telemetry import tracing as tracing
from .transfer import copy as copy
from .values import Event as Event
from .values import Message as Message
from .values import NewEvent as NewEvent
from .values import NewTask as NewTask
from .values import Notification as Notification
from .values import Task as Task

__all__: list[str]
__version__: str
