"""Every backend has a statement for every operation that needs one, with exactly its fields as parameters.

The tests read the ``.sql`` files and need no database.
"""

import ast
import inspect
import re
import textwrap
from importlib import import_module
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from eventkit.operations import Operation, Probe, Procedure
from eventkit.operations.batches import Fetching
from eventkit.operations.tables import ALL_TABLES
from eventkit.statements import load, operation_classes

BACKENDS = ("eventkit_sqlite", "eventkit_postgres")
FROM_THE_BACKEND = {"now"}
"""Parameters that stand for an expression of the database, not for a field."""

NOT_PARAMETERS = {
    "AckInLane": {"lane"},
    "AddMessage": {"message_id"},
    "GetResult": {"default"},
    "ReadEvents": {"skip"},
    "ReadOutbox": {"counted"},
}
"""Fields that only the operation's plan uses, beside ``codec``, which never is a parameter."""

NEEDLESS = {("eventkit_sqlite", "FindNow"): {"channels"}}
"""Fields that one database needs and another does not."""


IN_FUNCTIONS = {
    "eventkit_sqlite": set[str](),
    "eventkit_postgres": {
        "CopyDead",
        "DeleteTasks",
        "FindToCancel",
        "ForgetDone",
        "Lease",
        "MarkDead",
        "MarkDone",
        "Postpone",
        "ReadHeld",
        "ReserveKeys",
        "Revoke",
        "TakeFirst",
        "UpdateDue",
    },
}
"""Steps that only a function of the database takes, so that they have no statement."""


def has_statement(operation: type[Operation[Any]]) -> bool:
    """Return whether executing the operation, or a plan that yields it, takes a statement of its own."""
    if operation.plan is Operation.plan:
        return True
    if operation.plan is Procedure.plan:
        return False
    tree = ast.parse(textwrap.dedent(inspect.getsource(operation.plan)))
    yielded = [node.value for node in ast.walk(tree) if isinstance(node, ast.Yield)]
    return any(isinstance(value, ast.Name) and value.id == "self" for value in yielded)


def statements(backend: str) -> dict[str, str]:
    """Return the unprocessed text under each heading of the backend's files."""
    found: dict[str, str] = {}
    for file in files(backend).iterdir():
        if file.name.endswith(".sql"):
            parts = re.split(r"^-- name: (.*)$", file.read_text("utf-8"), flags=re.MULTILINE)
            for heading, text in zip(parts[1::2], parts[2::2], strict=True):
                assert heading not in found, f"{heading} has two statements"
                found[heading] = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE)
    of_table = import_module(f"{backend}.statements").of_table
    made = {name: text for table in ALL_TABLES for name, text in of_table(table).items() if name in table.operations}
    return made | found


CHANGING = (
    "eventkit_append",
    "eventkit_tell",
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
    "eventkit_unblock",
    "pg_try_advisory_xact_lock",
)
"""Functions of a database that change or lock something."""

BASES = {cls.__name__ for cls in (Operation, Probe, Procedure, Fetching)}
OPERATIONS = {name: cls for name, cls in operation_classes().items() if name not in BASES}


def test_the_operations_are_found() -> None:
    """The loader knows all modules of operations, so that the tests below cover each."""
    subclasses: set[str] = set()
    todo: list[type[Operation[Any]]] = [Operation]
    while todo:
        for cls in todo.pop().__subclasses__():
            todo.append(cls)
            if not cls.__name__.startswith("_") and cls.__module__.startswith("eventkit.operations"):
                subclasses.add(cls.__name__)
    assert subclasses - BASES == OPERATIONS.keys()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_heading_is_an_operation(backend: str) -> None:
    """No statement is without an operation."""
    assert statements(backend).keys() <= OPERATIONS.keys()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_operation_has_its_statement(backend: str) -> None:
    """Every operation that a plan yields has a statement; a plan alone has none.

    A database has functions for all procedures, or for none.
    """
    procedures = {name for name, cls in OPERATIONS.items() if cls.plan is Procedure.plan}
    wanted = {name for name, cls in OPERATIONS.items() if has_statement(cls)} - IN_FUNCTIONS[backend]
    assert statements(backend).keys() == wanted | (procedures if IN_FUNCTIONS[backend] else set())


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_are_the_fields(backend: str) -> None:
    """A statement uses every field and no other parameter."""
    for heading, text in statements(backend).items():
        fields = {field.name for field in msgspec.structs.fields(OPERATIONS[heading])}
        fields -= {"codec"} | NOT_PARAMETERS.get(heading, set()) | NEEDLESS.get((backend, heading), set())
        parameters = set(re.findall(r"(?<!:):([a-z]\w*)", text)) - FROM_THE_BACKEND
        assert parameters == fields, heading


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
