"""Loading the statements of a backend."""

import re
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.resources import files
from operator import attrgetter
from pkgutil import iter_modules
from typing import Any

import msgspec

from . import operations
from .operations import Operation, Procedure, Step
from .operations.tables import ALL_TABLES, Table

_HEADING = re.compile(r"^-- (name|step|part): (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--(?! (?:name|step|part): \w+$).*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*(?:\.\d+)?)")


COMMON = operations.__name__
"""The package whose ``.sql`` file has the statements with the same text in each of eventkit's own backends."""


class Statement(msgspec.Struct, frozen=True):
    """The SQL of an operation or a step, and how to read its parameters from one."""

    sql: str
    """Empty for a `Procedure` that takes its steps on this database: the rows are then `NO_STATEMENT`."""
    parameters: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    bulk: dict[int, int | None]
    """The positions of parameters that are lists, each with its column if it is one column of rows.

    Any parameter of a step may be one.
    """


def operation_classes() -> dict[str, type[Operation[Any]]]:
    """Return all operations, by name."""
    modules = [import_module(f"{operations.__name__}.{found.name}") for found in iter_modules(operations.__path__)]
    return {
        name: value
        for module in (operations, *modules)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Operation) and not name.startswith("_")
    }


def in_files(*packages: str) -> Iterator[tuple[str, str, str]]:
    """Yield each statement in the ``.sql`` files of *packages*: the kind of its heading, the heading, and the text.

    A statement belongs to the operation ``-- name: Operation``, or to the steps of plans that yield ``-- step: Step``.
    Text under ``-- part: text`` stands for ``:text`` in all statements.
    """
    found: list[str] = []
    for package in packages:
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".sql"):
                found += _HEADING.split(_COMMENT.sub("", file.read_text("utf-8")))[1:]
    headed = list(zip(found[::3], found[1::3], map(str.strip, found[2::3]), strict=True))
    parts = {heading: text for kind, heading, text in headed if kind == "part"}

    def whole(text: str) -> str:
        return _PARAMETER.sub(lambda match: whole(parts[match[1]]) if match[1] in parts else match[0], text)

    yield from ((kind, heading, whole(text)) for kind, heading, text in headed if kind != "part")


def load(
    package: str,
    placeholder: Callable[[int], str],
    constants: Mapping[str, str],
    of_table: Callable[[Table], Mapping[str, str]],
    *,
    common: bool = False,
) -> dict[str, Statement]:
    """Load the statements in the ``.sql`` files of *package*, by their headings.

    With *common*, those of `COMMON` are added, which need the tables and the parts of eventkit's own backends.
    *placeholder* writes the n-th parameter, from 1; a parameter named in *constants* is replaced by the text there.
    *of_table* makes the statements of a table by their headings; a file may have another one under that heading.
    """
    classes = operation_classes()
    steps = {heading for table in ALL_TABLES for heading in table.headings}
    texts = {name: text for table in ALL_TABLES for name, text in of_table(table).items() if name in steps}
    texts |= {name: "" for name, operation in classes.items() if issubclass(operation, Procedure)}
    for kind, heading, text in in_files(package, *([COMMON] if common else [])):
        if kind == "step":
            steps.add(heading)
        elif heading not in classes:
            raise LookupError(f"{package} has a statement for {heading}, which is no operation")
        texts[heading] = text
    return {
        heading: _statement(Step if heading in steps else classes[heading], text, placeholder, constants)
        for heading, text in texts.items()
    }


def _statement(
    operation: type[Operation[Any]], text: str, placeholder: Callable[[int], str], constants: Mapping[str, str]
) -> Statement:
    names: list[str] = []

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name in constants:
            return constants[name]
        if name not in names:
            names.append(name)
        return placeholder(names.index(name) + 1)

    sql = _PARAMETER.sub(replace, text)
    hints = {} if operation is Step else typing.get_type_hints(operation)
    fields = [name.partition(".")[::2] for name in names]
    bulk = {
        i: int(column) if column else None
        for i, (field, column) in enumerate(fields)
        if operation is Step or typing.get_origin(hints[field]) in (list, tuple)
    }
    return Statement(sql, tuple(names), _reader(operation, [field for field, _ in fields]), bulk)


def _reader(operation: type[Operation[Any]], names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if operation is Step:
        return lambda step: tuple([step.parameters[name] for name in names])
    if not names:
        return lambda operation: ()
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda operation: (get(operation),)
    return attrgetter(*names)
