"""Loading a backend's statements.

A backend keeps its SQL in ``.sql`` files.  A line ``-- name: Publish`` heads the statement of the operation
`Publish`, and ``:topic`` in it stands for the operation's field; ``:events.0`` is the first column of a field
that is a list of rows.  The names are turned into the driver's numbered placeholders once, when the backend is
loaded; what remains for each call is to read the fields in the right order.
"""

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
    api_key,
    audit,
    browse,
    chain,
    channel,
    claim,
    collected,
    copy,
    enqueue,
    extract,
    finish,
    history,
    inbox,
    job,
    lake,
    limit,
    lock,
    maintenance,
    outbox,
    overview,
    pipeline,
    position,
    queue,
    queue_settings,
    result,
    retention,
    rollup,
    schedule,
    staging,
    stream,
    tick,
    worker,
)

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*(?:\.\d+)?)")


class Statement(msgspec.Struct, frozen=True):
    """The SQL of one operation, and how to get its parameters from an operation of that class."""

    sql: str
    parameters: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    bulk: dict[int, int | None]
    """The places of bulk parameters, and of which column where it is one column of rows."""
    single: bool
    """Whether the statement is the operation's whole plan."""


def operation_classes() -> dict[str, type[Operation[Any]]]:
    """Every operation there is, by name."""
    modules = (
        operations,
        api_key,
        audit,
        stream,
        channel,
        enqueue,
        extract,
        claim,
        finish,
        queue,
        queue_settings,
        chain,
        collected,
        copy,
        job,
        outbox,
        overview,
        history,
        pipeline,
        position,
        inbox,
        schedule,
        tick,
        lake,
        lock,
        maintenance,
        limit,
        result,
        retention,
        rollup,
        staging,
        worker,
        browse,
    )
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Operation) and not name.startswith("_")
    }


def load(
    package: str, placeholder: Callable[[int], str], constants: Mapping[str, str]
) -> dict[type[Operation[Any]], Statement]:
    """The statements in the ``.sql`` files of *package*.

    *placeholder* writes the n-th parameter, from 1; a parameter named in *constants* is replaced by the text there.
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
    return Statement(
        sql, tuple(names), _reader([field for field, *_ in fields]), bulk, operation.plan is Operation.plan
    )


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda operation: ()
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda operation: (get(operation),)
    return attrgetter(*names)
