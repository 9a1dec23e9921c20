"""The arguments of a task: from a call to JSON, and from JSON to a call.

Arguments travel by name, as an object.  What they may be is what the function's annotations say; a parameter
without one takes any JSON value.  Defaults do not travel: the function has them when it runs.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from .context import AsyncTaskContext, TaskContext

OPTIONS = (
    "delay",
    "run_at",
    "priority",
    "max_attempts",
    "expires",
    "key",
    "headers",
    "wait",
    "tx",
)
"""What `enqueue` takes for itself, so that no parameter of a task can have such a name."""

_CONTEXTS = (TaskContext, AsyncTaskContext)
_EMPTY = inspect.Parameter.empty
_REFUSED = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional only: arguments travel by name, so take the / away",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments: take a list",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name: take a dict, or name them",
}


class _Resolved(NamedTuple):
    """What the annotations say, once they can be read."""

    struct: type[msgspec.Struct]
    context: str | None
    returns: Any


class Signature:
    """The parameters of *function*; with *batch*, of which each call brings one item of its one list."""

    def __init__(self, function: Callable[..., Any], name: str, *, batch: bool = False) -> None:
        self._function = function
        self._name = name
        self._batch = batch
        self._parameters = _checked(function, name)
        self._positional = [
            parameter.name
            for parameter in self._parameters.values()
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]
        self._known: _Resolved | None = None
        # An annotation may name what the module defines only later; then the first call tells.
        with suppress(NameError):
            self._resolve()

    @property
    def context(self) -> str | None:
        """The name of the parameter that is given the context, if there is one."""
        return self._resolve().context

    @property
    def returns(self) -> Any:
        """The annotation of what the function returns, of an async one when it is awaited; Any where there is none."""
        return self._resolve().returns

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call as JSON values, or ``TypeError`` where the function would not take them."""
        named = self.bind(args, kwargs)
        struct = self._resolve().struct
        try:
            given = struct(**named)
            plain = msgspec.to_builtins(given, str_keys=True)
            read = msgspec.convert(plain, struct, str_keys=True)
        except (TypeError, msgspec.ValidationError, RecursionError) as error:
            raise TypeError(f"{self._name}: {error}") from None
        for name, value in named.items():
            if not _same(value, again := getattr(read, name)):
                raise TypeError(
                    f"{self._name}: {name!r} would arrive as {type(again).__name__}, and something of it as another "
                    f"type than it was given: annotate the parameter with what it is, or pass JSON values"
                )
        encoded: dict[str, Any] = plain
        return encoded

    def decode(self, args: Any) -> dict[str, Any]:
        """The arguments that *args* stands for, but defaults; ``msgspec.ValidationError`` if they are others."""
        struct = self._resolve().struct
        read = msgspec.convert(args, struct, str_keys=True)
        return {name: getattr(read, name) for name in args}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name; those that are left out are not in it."""
        context, named = self.context, dict(kwargs)
        if args:
            positional = [name for name in self._positional if name != context]
            if len(args) > len(positional):
                raise TypeError(f"{self._name}: {len(positional)} arguments by position are the most, not {len(args)}")
            for name, value in zip(positional, args, strict=False):
                if name in kwargs:
                    raise TypeError(f"{self._name}: {name!r} is given twice")
                named[name] = value
        if context in named:
            raise TypeError(f"{self._name}: {context!r} is the context, which the worker brings")
        return named

    @property
    def required(self) -> list[str]:
        """The parameters that every call has to bring."""
        return [name for name in self._parameters if name not in self.defaults() and name != self.context]

    def defaults(self) -> dict[str, Any]:
        """The parameters that have a default, and it."""
        return {
            name: parameter.default for name, parameter in self._parameters.items() if parameter.default is not _EMPTY
        }

    def _resolve(self) -> _Resolved:
        if self._known is None:
            hints = typing.get_type_hints(self._function, include_extras=True)
            returns = hints.pop("return", Any)
            contexts = [name for name, hint in hints.items() if hint in _CONTEXTS]
            self._check_contexts(contexts, hints)
            fields = [
                self._field(parameter, hints) for name, parameter in self._parameters.items() if name not in contexts
            ]
            if self._batch:
                fields = [self._item(fields)]
            struct = msgspec.defstruct(f"arguments of {self._name}", fields, kw_only=True, forbid_unknown_fields=True)
            try:
                msgspec.json.Decoder(struct)
            except TypeError as error:
                raise TypeError(f"{self._name}: the arguments cannot be told from JSON: {error}") from None
            self._known = _Resolved(struct, contexts[0] if contexts else None, returns)
        return self._known

    def _check_contexts(self, contexts: list[str], hints: dict[str, Any]) -> None:
        if len(contexts) > 1:
            raise TypeError(
                f"{self._name}: there is one context, so one parameter takes it, not {' and '.join(contexts)}"
            )
        if contexts and self._batch:
            raise TypeError(f"{self._name}: a batch has no context, for it is many tasks: leave {contexts[0]!r} out")
        if contexts and hints[contexts[0]] is AsyncTaskContext and not inspect.iscoroutinefunction(self._function):
            raise TypeError(f"{self._name}: only an async function gets an AsyncTaskContext: annotate TaskContext")

    def _field(self, parameter: inspect.Parameter, hints: dict[str, Any]) -> tuple[str, Any] | tuple[str, Any, Any]:
        hint = hints.get(parameter.name, Any)
        if parameter.default is _EMPTY:
            return parameter.name, hint
        return parameter.name, typing.Union[hint, msgspec.UnsetType], msgspec.UNSET  # noqa: UP007  # a hint may be text

    def _item(self, fields: list[Any]) -> tuple[str, Any]:
        """The one field of a batch: an item of the list."""
        hint = fields[0][1] if len(fields) == 1 and len(fields[0]) == 2 else None
        if typing.get_origin(hint) is not list:
            raise TypeError(
                f"{self._name}: with batch= a function takes one parameter, annotated list[…] of one task's item"
            )
        return fields[0][0], typing.get_args(hint)[0]


def payload_type(function: Callable[..., Any], message: Any) -> Any:
    """The payload's type by the annotation of the function's one parameter, such as ``Event[Order]``; else None."""
    parameters = [one for one in inspect.signature(function).parameters.values() if one.default is _EMPTY]
    if len(parameters) != 1:
        raise TypeError(f"{function.__name__} is called with one {message.__name__}, so it takes one parameter")
    hint = typing.get_type_hints(function).get(parameters[0].name)
    if typing.get_origin(hint) is not message:
        return None
    return typing.get_args(hint)[0]


def _checked(function: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    """The function's parameters, all of which can be given by name."""
    parameters = dict(inspect.signature(function).parameters)
    for parameter in parameters.values():
        if parameter.kind in _REFUSED:
            raise TypeError(f"{name}: {str(parameter)!r} {_REFUSED[parameter.kind]}")
        if parameter.name in OPTIONS:
            raise TypeError(f"{name}: {parameter.name!r} is an option of enqueue: give the parameter another name")
    return parameters


def _same(given: Any, read: Any) -> bool:
    """Whether what was read stands for what was given; what has no equality of its own need only be of one type."""
    if given is read or given == read:
        return True
    if isinstance(given, list | tuple) and isinstance(read, list | tuple):
        return len(given) == len(read) and all(map(_same, given, read))
    if isinstance(given, dict) and isinstance(read, dict):
        return given.keys() == read.keys() and all(_same(value, read[key]) for key, value in given.items())
    return type(given) is type(read)
