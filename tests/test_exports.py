"""The names that `import eventkit` gives, and the cost of the import."""

import ast
import inspect
import subprocess
import sys
import time
from pathlib import Path

import eventkit
from eventkit import errors

PUBLIC = [
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
    "DeadTasks",
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
    "StreamStats",
    "Task",
    "TaskCancelled",
    "TaskContext",
    "TaskFailed",
    "TaskFunction",
    "TaskHandle",
    "TaskInfo",
    "TaskQueue",
    "TimedOut",
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

HEAVY = (
    "apsw",
    "sqlalchemy",
    "alembic",
    "psycopg",
    "pyspark",
    "opentelemetry",
    "eventkit_sqlite",
    "eventkit_migrations",
)

AT_MOST = 2.0
"""Seconds; about 0.05 on an idle machine.  The limit catches a heavy import and tolerates a busy machine."""


def test_the_public_names_are_pinned() -> None:
    """A public name is neither added nor removed by accident."""
    assert eventkit.__all__ == PUBLIC
    assert all(hasattr(eventkit, name) for name in PUBLIC)


def test_every_public_name_says_what_it_is() -> None:
    """Every exported name has a docstring, and so has each of its public methods."""
    for name in PUBLIC:
        thing = getattr(eventkit, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and not name.startswith("Async"):
            for member, value in vars(thing).items():
                if inspect.isfunction(value) and not member.startswith("_") and "overload" not in repr(value):
                    assert value.__doc__ or name == "EventKit", f"{name}.{member}"


def test_every_error_is_exported() -> None:
    """Every error that the library raises can be caught by a name of the package."""
    raised = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert raised <= set(PUBLIC)


def test_what_type_checkers_see_is_what_there_is() -> None:
    """Each name is written once for type checkers and once for the import, with the same module in both."""
    tree = ast.parse(Path(eventkit.__file__).read_text("utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    seen = [(alias.name, node.module) for node in imported for alias in node.names]
    assert all(alias.asname == alias.name for node in imported for alias in node.names)
    assert len(seen) == len(PUBLIC)
    assert dict(seen) == eventkit._MODULES
    assert sorted(eventkit._MODULES) == PUBLIC


def test_importing_the_package_loads_no_driver() -> None:
    """A process that only imports the package loads no module for later use."""
    program = f"import sys, eventkit; print(*[name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_importing_the_package_is_quick() -> None:
    """The limit is far below the cost of a driver or framework."""
    program = "import time; began = time.perf_counter(); import eventkit; print(time.perf_counter() - began)"
    took = []
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        took.append(float(ran.stdout))
        time.sleep(0.1)
    assert min(took) < AT_MOST
