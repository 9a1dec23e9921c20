"""The names that `import eventkit` gives, and the cost of the import."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import eventkit
from eventkit import errors

_NAMES = (
    "App AsyncApp AsyncEventKit Blueprint Busy Closed DatabaseError DatabaseReplaced Disconnected Event EventKit "
    "EventStream EventkitError Exponential Fixed ForeignTransaction Inbox KeyConflict LeaseLost Linear Lock LockHeld "
    "Message NewEvent NewTask NotMigrated Notification NotificationChannel Outbox Permanent Progress QueueFull Results "
    "Retry Schedules Snooze Task TaskCancelled TaskContext TaskFailed TaskHandle TaskQueue TimedOut Truncated "
    "Unavailable connect connect_async copy tracing"
)
PUBLIC = _NAMES.split()

IN_MODULES = {
    "app": "AsyncBlueprint AsyncTaskContext AsyncTaskFunction AsyncTaskHandle TaskCall TaskFunction",
    "codec": "Undecodable",
    "errors": "CopyDiffers UnknownBackend",
    "protocols": (
        "AsyncEventStream AsyncInbox AsyncLimit AsyncLock AsyncNotificationChannel AsyncOutbox AsyncResults "
        "AsyncSchedules AsyncTaskQueue Limit"
    ),
    "retry": "Delays",
    "values": (
        "ChannelInfo ChannelSettings Consumer DeadTasks Enqueued Fire HeldLock InboxSettings LimitInfo Maintained "
        "OutboxStats Overview QueueSettings QueueStats Schedule ScheduleStats StreamSettings StreamStats TaskInfo "
        "WorkerInfo"
    ),
}
"""Public names that few programs write, which stay in their modules."""

OTHERS = {name: f"eventkit.{module}" for module, names in IN_MODULES.items() for name in names.split()}

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
    """Every public name has a docstring, and so has each of its public methods."""
    for name in (*PUBLIC, *OTHERS):
        thing = getattr(import_module(OTHERS.get(name, "eventkit")), name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and not name.startswith("Async"):
            for member, value in vars(thing).items():
                if inspect.isfunction(value) and not member.startswith("_") and "overload" not in repr(value):
                    assert value.__doc__ or name == "EventKit", f"{name}.{member}"


def test_every_error_is_exported() -> None:
    """Every error that the library raises can be caught by a public name."""
    raised = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert raised <= {*PUBLIC, *IN_MODULES["errors"].split()}


def test_what_type_checkers_see_is_what_there_is() -> None:
    """Each name is written once, in the stub, which says where the import finds it."""
    tree = ast.parse(Path(eventkit.__file__).with_suffix(".pyi").read_text("utf-8"))
    imported = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = [(alias.name, f".{node.module}") for node in imported for alias in node.names]
    assert all(alias.asname == alias.name and node.level == 1 for node in imported for alias in node.names)
    assert len(seen) == len(PUBLIC)
    assert dict(seen) == eventkit._MODULES
    assert sorted(eventkit._MODULES) == PUBLIC


def test_importing_the_package_loads_no_driver_and_is_quick() -> None:
    """A process that only imports the package loads no module for later use."""
    without = "import sys, eventkit.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", without], check=True)
    program = (
        "import sys, time; began = time.perf_counter(); import eventkit; print(time.perf_counter() - began, "
        f"*[name for name in {HEAVY} if name in sys.modules])"
    )
    took = []
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        seconds, *loaded = ran.stdout.split()
        assert loaded == []
        took.append(float(seconds))
    assert min(took) < AT_MOST
