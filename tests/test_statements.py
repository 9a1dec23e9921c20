"""Every backend has a statement for every operation or step that needs one, with exactly its fields as parameters.

The tests read the ``.sql`` files and need no database.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventkit.operations import Operation, Probe, Procedure, Read, ReadStep, Step
from eventkit.operations.schedule import Settings
from eventkit.operations.tables import ALL_TABLES, Fetching
from eventkit.statements import COMMON, in_files, load, operation_classes
from eventkit.values import QueueSettings

BACKENDS = ("eventkit_sqlite", "eventkit_postgres")
FROM_THE_BACKEND = {"now", "ms"}
"""Parameters that stand for an expression of the database, not for a field."""

NOT_PARAMETERS = {
    "AddMessage": {"message_id"},
    "GetResult": {"default"},
    "KeepConsumer": {"offset", "created"},
    "LeaveConsumer": {"offset", "created"},
    "ReadEvents": {"skip"},
    "ReadOutbox": {"counted"},
}
"""Fields that only the operation's plan uses, beside ``codec``, which never is a parameter."""

FOREIGN = "eventkit_elsewhere"
"""A backend of a third party, with statements for a part of the operations (``tests/foreign_backend``)."""

NEEDLESS = {
    ("eventkit_sqlite", "FindNow"): {"channels"},
    (FOREIGN, "FindNow"): {"channels"},
    (FOREIGN, "HoldHistory"): {"queue"},
    (FOREIGN, "WriteSettings"): {"history", "ordered", "on_dead", "fair", "group_max_running", "group_rate", "weights"},
}
"""Fields that one database needs and another does not."""


IN_FUNCTIONS = {
    "eventkit_sqlite": set[str](),
    "eventkit_postgres": {
        "Block",
        "CopyDead",
        "DeleteTasks",
        "FindToCancel",
        "ForgetDone",
        "HoldBack",
        "Lease",
        "LeaseInGroups",
        "LeaseInOrder",
        "MarkDead",
        "MarkDone",
        "Postpone",
        "PutOff",
        "ReadHeld",
        "ReserveKeys",
        "Revoke",
        "TakeFirst",
        "UpdateDue",
    },
}
"""Steps that only a function of the database takes, so that they have no statement."""


@pytest.fixture(scope="module")
def foreign() -> Iterator[str]:
    """Return the foreign backend, which can be imported meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent / "foreign_backend")
        yield FOREIGN


def has_statement(operation: type[Operation[Any]]) -> bool:
    """Return whether executing the operation, or a plan that yields it, takes a statement of its own."""
    if operation.plan is Operation.plan:
        return True
    if operation.plan is Procedure.plan:
        return False
    tree = ast.parse(textwrap.dedent(inspect.getsource(operation.plan)))
    yielded = [node.value for node in ast.walk(tree) if isinstance(node, ast.Yield)]
    return any(isinstance(value, ast.Name) and value.id == "self" for value in yielded)


def statements(backend: str, *kinds: str) -> dict[str, str]:
    """Return the unprocessed text under each heading of the backend's files, or under those of some kinds."""
    found: dict[str, str] = {}
    for kind, name, text in in_files(backend, *([COMMON] if backend in BACKENDS else [])):
        assert name not in found, f"{name} has two statements"
        if kind in kinds or not kinds:
            found[name] = text
    if kinds == ("name",):
        return found
    of_table = import_module(f"{backend}.statements").of_table
    made = {name: text for table in ALL_TABLES for name, text in of_table(table).items() if name in table.headings}
    return made | found


def steps() -> Iterator[tuple[str, set[str]]]:
    """Yield each step in a plan: its heading, and the names of its parameters.

    Where a plan passes all fields of a settings object, they are the parameters.
    """
    for file in files("eventkit.operations").iterdir():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))) if file.name.endswith(".py") else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "step":
                [heading] = node.args
                assert isinstance(heading, ast.Constant), "the heading of a step is a literal"
                spread = set(SPREAD[heading.value].__struct_fields__) if heading.value in SPREAD else set()
                assert bool(spread) == any(keyword.arg is None for keyword in node.keywords), heading.value
                yield heading.value, spread | {keyword.arg for keyword in node.keywords if keyword.arg is not None}
    for table in ALL_TABLES:
        made = table.export(*table.before, 1), table.write([]), table.advance(1)
        yield from ((step.heading, set(step.parameters)) for step in made if step.heading in table.headings)


SPREAD: dict[str, Any] = {"WriteSchedule": Settings, "RewriteSchedule": Settings, "WriteSettings": QueueSettings}
"""The settings whose fields are parameters of a step."""

CHANGING = (
    "eventkit_append",
    "eventkit_add_notification",
    "eventkit_add",
    "eventkit_mark_dead",
    "eventkit_cancel",
    "eventkit_claimed",
    "eventkit_count_call",
    "eventkit_extend_held",
    "eventkit_finish",
    "eventkit_forget_keys",
    "eventkit_free_lock",
    "eventkit_gate",
    "eventkit_hold_history",
    "eventkit_hold_sharing",
    "eventkit_regroup",
    "eventkit_settle_dead",
    "eventkit_move_offset",
    "eventkit_promote",
    "eventkit_remove",
    "eventkit_retry_held",
    "eventkit_room",
    "eventkit_save_task_result",
    "eventkit_spend_tokens",
    "eventkit_store_result",
    "eventkit_take_lock",
)
"""Functions of a database that change or lock something."""

ABSTRACT = (Operation, Procedure, Read, Probe, Fetching, Step, ReadStep)
OPERATIONS = {name: cls for name, cls in operation_classes().items() if cls not in ABSTRACT}


def test_the_operations_are_found() -> None:
    """The loader knows all modules of operations, so that the tests below cover each."""
    subclasses: set[str] = set()
    todo: list[type[Operation[Any]]] = [Operation]
    while todo:
        for cls in todo.pop().__subclasses__():
            todo.append(cls)
            if not cls.__name__.startswith("_") and cls.__module__.startswith("eventkit.operations"):
                subclasses.add(cls.__name__)
    assert subclasses - {cls.__name__ for cls in ABSTRACT} == OPERATIONS.keys()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_heading_is_an_operation(backend: str) -> None:
    """No statement is without an operation, or without a plan that yields it as a step."""
    assert statements(backend, "name").keys() <= OPERATIONS.keys()
    assert statements(backend, "step").keys() == dict(steps()).keys() - IN_FUNCTIONS[backend]
    assert not statements(backend, "step").keys() & OPERATIONS.keys()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_operation_has_its_statement(backend: str) -> None:
    """Every operation that a plan yields has a statement; a plan alone has none.

    A database has functions for all procedures, or for none.
    """
    procedures = {name for name, cls in OPERATIONS.items() if cls.plan is Procedure.plan}
    wanted = {name for name, cls in OPERATIONS.items() if has_statement(cls)} - IN_FUNCTIONS[backend]
    assert statements(backend, "name").keys() == wanted | (procedures if IN_FUNCTIONS[backend] else set())


def test_a_foreign_backend_has_headings_of_the_others(foreign: str) -> None:
    """An author takes headings from the operations and their plans, and leaves out some of them."""
    for kind in ("name", "step"):
        assert statements(foreign, kind).keys() < statements("eventkit_sqlite", kind).keys()
    wanted = {name for name, cls in OPERATIONS.items() if has_statement(cls)}
    assert len(wanted & statements(foreign, "name").keys()) > len(wanted) / 2


@pytest.mark.parametrize("backend", [*BACKENDS, FOREIGN])
@pytest.mark.usefixtures("foreign")
def test_parameters_are_the_fields(backend: str) -> None:
    """A statement of an operation uses every field of it, and that of a step every value that plans pass to it."""
    fields = [
        (name, {field.name for field in msgspec.structs.fields(cls)} - {"codec"} - NOT_PARAMETERS.get(name, set()))
        for name, cls in OPERATIONS.items()
    ]
    for kind, given in (("name", fields), ("step", [*steps()])):
        texts = statements(backend, kind)
        for heading, parameters in [(heading, parameters) for heading, parameters in given if heading in texts]:
            used = set(re.findall(r"(?<!:):([a-z]\w*)", texts[heading])) - FROM_THE_BACKEND
            assert used == parameters - NEEDLESS.get((backend, heading), set()), heading


def test_what_only_reads_says_so() -> None:
    """A statement that changes something on any backend belongs to an operation that writes, and the other way round.

    A reading operation runs beside the writer, so a wrong declaration would write without the write lock.
    """
    changing = re.compile(rf"\b(INSERT|(?<!FOR )UPDATE|DELETE|CREATE|DROP|{'|'.join(CHANGING)})\b")
    changes = {
        heading for backend in BACKENDS for heading, text in statements(backend).items() if changing.search(text)
    }
    for name, cls in OPERATIONS.items():
        if cls.plan is Operation.plan:
            assert cls.writes == (name in changes), name


def test_a_heading_that_is_no_operation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt heading fails when the backend is loaded, before its first use."""
    with pytest.raises(LookupError, match=r"has a statement for \w+, which is no operation"):
        monkeypatch.setattr("eventkit.statements.operation_classes", dict)
        load(BACKENDS[0], lambda number: f"?{number}", {"now": "0"}, lambda table: {})
