"""Loading the statements of a backend."""

import re
import typing
from collections.abc import Callable, Mapping
from importlib.resources import files
from operator import attrgetter
from typing import Any

import msgspec

from . import operations
from .operations import (
    Operation,
    Procedure,
    admin,
    archive,
    batches,
    channel,
    claim,
    collected,
    coordination,
    enqueue,
    finish,
    maintenance,
    outbox,
    position,
    queue,
    result,
    schedule,
    settings,
    stream,
    tables,
)

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*(?:\.\d+)?)")


class Statement(msgspec.Struct, frozen=True):
    """The SQL of one operation, and how to read its parameters from an operation of that class."""

    sql: str
    """Empty for a `Procedure` that takes its steps on this database: the rows are then `NO_STATEMENT`."""
    parameters: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    bulk: dict[int, int | None]
    """The positions of bulk parameters, each with its column if it is one column of rows."""
    single: bool
    """True if the statement is the operation's whole plan."""


def operation_classes() -> dict[str, type[Operation[Any]]]:
    """Return all operations, by name."""
    modules = (
        admin,
        archive,
        batches,
        channel,
        claim,
        collected,
        coordination,
        enqueue,
        finish,
        maintenance,
        operations,
        outbox,
        position,
        queue,
        result,
        schedule,
        settings,
        stream,
        tables,
    )
    classes = {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Operation) and not name.startswith("_")
    }
    for table in tables.ALL_TABLES:
        classes |= table.operations
    return classes


def load(
    package: str,
    placeholder: Callable[[int], str],
    constants: Mapping[str, str],
    of_table: Callable[[tables.Table], Mapping[str, str]],
) -> dict[type[Operation[Any]], Statement]:
    """Load the statements in the ``.sql`` files of *package*.

    *placeholder* writes the n-th parameter, from 1; a parameter named in *constants* is replaced by the text there.
    *of_table* makes the statements of a table by the names of its operations; a file may have another one of that name.
    """
    classes = operation_classes()
    statements: dict[type[Operation[Any]], Statement] = {}
    for file in sorted(files(package).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            parts = _HEADING.split(file.read_text("utf-8"))[1:]
            for name, text in zip(parts[::2], parts[1::2], strict=True):
                if name not in classes:
                    raise LookupError(f"{file.name} has a statement for {name}, which is no operation")
                statements[classes[name]] = _statement(classes[name], text, placeholder, constants)
    for table in tables.ALL_TABLES:
        texts = of_table(table)
        for name, operation in table.operations.items():
            if operation not in statements:
                statements[operation] = _statement(operation, texts[name], placeholder, constants)
    for operation in classes.values():
        if issubclass(operation, Procedure):
            statements.setdefault(operation, Statement("", (), _reader([]), {}, False))
    return statements


def _statement(
    operation: type[Operation[Any]],
    text: str,
    placeholder: Callable[[int], str],
    constants: Mapping[str, str],
) -> Statement:
    names: list[str] = []

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name in constants:
            return constants[name]
        if name not in names:
            names.append(name)
        return placeholder(names.index(name) + 1)

    sql = _PARAMETER.sub(replace, _COMMENT.sub("", text)).strip()
    hints = typing.get_type_hints(operation)
    fields = [name.partition(".") for name in names]
    bulk = {
        i: int(column) if column else None
        for i, (field, _, column) in enumerate(fields)
        if typing.get_origin(hints[field]) in (list, tuple)
    }
    single = operation.plan in (Operation.plan, Procedure.plan)
    return Statement(sql, tuple(names), _reader([field for field, *_ in fields]), bulk, single)


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda operation: ()
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda operation: (get(operation),)
    return attrgetter(*names)
