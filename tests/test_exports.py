"""What `import eventkit` gives, and what it costs."""

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
"""Seconds; some 0.05 on an idle machine.  What this catches is a heavy import, not a slow day."""


def test_the_public_names_are_pinned() -> None:
    """A name that users can import neither comes nor goes by accident."""
    assert eventkit.__all__ == PUBLIC
    assert all(hasattr(eventkit, name) for name in PUBLIC)


def test_every_public_name_says_what_it_is() -> None:
    """Whatever is exported has a docstring, and so has every public method of it."""
    for name in PUBLIC:
        thing = getattr(eventkit, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and not name.startswith("Async"):
            for member, value in vars(thing).items():
                if inspect.isfunction(value) and not member.startswith("_") and "overload" not in repr(value):
                    assert value.__doc__ or name == "EventKit", f"{name}.{member}"


def test_every_error_is_exported() -> None:
    """What the library raises on its own account can be caught by a name of the package."""
    raised = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert raised <= set(PUBLIC)


def test_what_type_checkers_see_is_what_there_is() -> None:
    """Names are written twice, for those who check and for those who run; each is of the same module in both."""
    tree = ast.parse(Path(eventkit.__file__).read_text("utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    assert {str(node.module): tuple(alias.name for alias in node.names) for node in imported} == eventkit._PLACES
    assert sorted(eventkit._MODULES) == PUBLIC


def test_importing_the_package_loads_no_driver() -> None:
    """A process that only names the package pays for none of what serves it later."""
    program = f"import sys, eventkit; print(*[name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_importing_the_package_is_quick() -> None:
    """Far below what any driver or framework among the imports would cost."""
    program = "import time; began = time.perf_counter(); import eventkit; print(time.perf_counter() - began)"
    took = []
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        took.append(float(ran.stdout))
        time.sleep(0.1)
    assert min(took) < AT_MOST
