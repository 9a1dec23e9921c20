"""The declarations of an application as values: tasks with the arguments of their functions, subscribers, schedules."""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from types import NoneType
from typing import Any, NamedTuple, TypedDict

import msgspec

from .. import checks, retry
from ..checks import Duration
from ..codec import LARGEST, Codec, Undecodable
from ..cron import parse
from ..handling import Permanent, Retry, explained
from ..outbox import PREFIX, message_of
from ..retry import Policy, PolicyName
from ..values import CatchUp, Event, Isolation, Message, NewEvent, Notification, OnCrash, Task, Then
from .task import AsyncTaskContext, Function, TaskContext

_CONTEXTS = (TaskContext, AsyncTaskContext)
_EMPTY = inspect.Parameter.empty
_REFUSED = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional only, but arguments are stored by name: remove the /",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments: declare a list",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name: declare a dict, or name them",
}


class Refused(Permanent):
    """Raised for a task that cannot be run, with the *reason* of its death, and for an unreadable payload."""

    def __init__(self, error: str, reason: str = "failed") -> None:
        super().__init__(error)
        self.reason = reason
        self.code = error.partition(":")[0]


class _Resolved(NamedTuple):
    """The resolved annotations of a function."""

    struct: type[msgspec.Struct]
    context: str | None
    returns: Any


class Signature:
    """The parameters of *function*; with *batch*, the item type of its one list parameter."""

    def __init__(self, function: Callable[..., Any], name: str, *, batch: bool = False) -> None:
        self._function = function
        self._name = name
        self._batch = batch
        self._parameters = inspect.signature(function).parameters
        for parameter in self._parameters.values():
            if parameter.kind in _REFUSED:
                raise TypeError(f"{name}: {str(parameter)!r} {_REFUSED[parameter.kind]}")
        # An annotation may name a class that the module defines later; it is then resolved at the first call.
        with suppress(NameError):
            _ = self._resolved

    @property
    def context(self) -> str | None:
        """The name of the parameter that takes the context, if there is one."""
        return self._resolved.context

    @property
    def returns(self) -> Any:
        """The annotation of the returned value, awaited for an async function; Any if there is none."""
        return self._resolved.returns

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as JSON values; raise ``TypeError`` if the function would not accept them."""
        named = self.bind(args, kwargs)
        struct = self._resolved.struct
        try:
            given = struct(**named)
            plain = msgspec.to_builtins(given, str_keys=True)
            read = msgspec.convert(plain, struct, str_keys=True)
        except (TypeError, msgspec.ValidationError, RecursionError) as error:
            raise TypeError(f"{self._name}: {error}") from None
        for name, value in named.items():
            if not _same(value, again := getattr(read, name)):
                raise TypeError(
                    f"{self._name}: {name!r} would arrive as {type(again).__name__}, with values of another type than "
                    f"those passed: annotate the parameter with its type, or pass JSON values"
                )
        encoded: dict[str, Any] = plain
        return encoded

    def decode(self, args: Any) -> dict[str, Any]:
        """Return the arguments for *args*, without defaults; raise ``msgspec.ValidationError`` if they do not match."""
        read = msgspec.convert(args, self._resolved.struct, str_keys=True)
        return {name: getattr(read, name) for name in args}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, without omitted ones."""
        context, named = self.context, dict(kwargs)
        if args:
            positional = [
                name
                for name, parameter in self._parameters.items()
                if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and name != context
            ]
            if len(args) > len(positional):
                raise TypeError(f"{self._name}: at most {len(positional)} positional arguments, not {len(args)}")
            for name, value in zip(positional, args, strict=False):
                if name in kwargs:
                    raise TypeError(f"{self._name}: {name!r} is given twice")
                named[name] = value
        if context in named:
            raise TypeError(f"{self._name}: {context!r} is the context, which the worker passes")
        return named

    @property
    def required(self) -> list[str]:
        """The parameters without a default."""
        return [name for name in self._parameters if name not in self.defaults() and name != self.context]

    def defaults(self) -> dict[str, Any]:
        """Return the parameters that have a default, with it."""
        return {name: one.default for name, one in self._parameters.items() if one.default is not _EMPTY}

    @cached_property
    def _resolved(self) -> _Resolved:
        hints = typing.get_type_hints(self._function, include_extras=True)
        returns = hints.pop("return", Any)
        contexts = [name for name, hint in hints.items() if hint in _CONTEXTS]
        if len(contexts) > 1:
            raise TypeError(f"{self._name}: only one parameter may take the context, not {' and '.join(contexts)}")
        if contexts and self._batch:
            raise TypeError(f"{self._name}: a batch has no context, being many tasks: remove {contexts[0]!r}")
        if contexts and hints[contexts[0]] is AsyncTaskContext and not inspect.iscoroutinefunction(self._function):
            raise TypeError(f"{self._name}: only an async function gets an AsyncTaskContext: annotate TaskContext")
        fields: list[Any] = []
        for name, parameter in self._parameters.items():
            hint = hints.get(name, Any)
            if name not in contexts and parameter.default is _EMPTY:
                fields.append((name, hint))
            elif name not in contexts:  # A hint may be text.
                fields.append((name, typing.Union[hint, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
        if self._batch:
            hint = fields[0][1] if len(fields) == 1 and len(fields[0]) == 2 else None
            if typing.get_origin(hint) is not list:
                raise TypeError(
                    f"{self._name}: with batch= a function takes one parameter, annotated list[…] of one task's item"
                )
            fields = [(fields[0][0], typing.get_args(hint)[0])]
        struct = msgspec.defstruct(f"arguments of {self._name}", fields, kw_only=True, forbid_unknown_fields=True)
        try:
            msgspec.json.Decoder(struct)
        except TypeError as error:
            raise TypeError(f"{self._name}: the arguments cannot be decoded from JSON: {error}") from None
        return _Resolved(struct, contexts[0] if contexts else None, returns)


def payload_type(function: Callable[..., Any], message: Any) -> Any:
    """Return the payload's type from the annotation of the one parameter, such as ``Event[Order]``; else None."""
    parameters = [one for one in inspect.signature(function).parameters.values() if one.default is _EMPTY]
    if len(parameters) != 1:
        raise TypeError(f"{function.__name__} is called with one {message.__name__}: it must take one parameter")
    hint = typing.get_type_hints(function).get(parameters[0].name)
    if typing.get_origin(hint) is not message:
        return None
    return typing.get_args(hint)[0]


def _same(given: Any, read: Any) -> bool:
    """Return whether *read* equals *given*; values without an equality of their own only need the same type."""
    if given is read or given == read:
        return True
    if isinstance(given, list | tuple) and isinstance(read, list | tuple):
        return len(given) == len(read) and all(map(_same, given, read))
    if isinstance(given, dict) and isinstance(read, dict):
        return given.keys() == read.keys() and all(_same(value, read[key]) for key, value in given.items())
    return type(given) is type(read)


Hook = Callable[..., Any]
Backoff = Policy | PolicyName | Sequence[float]
Key = Callable[..., str | None] | str
Errors = type[BaseException] | tuple[type[BaseException], ...]


class TaskOptions(TypedDict, total=False):
    """The options of ``app.task`` beside ``batch``, as `TaskDeclaration` describes them."""

    name: str | None
    queue: str
    priority: int
    expires: Duration | None
    max_attempts: int | None
    retry_on: Errors | None
    give_up_on: Errors | None
    result_ttl: Duration | None
    timeout: Duration | None
    backoff: Backoff | None
    rate: float | None
    burst: float | None
    max_running: int | None
    key: Key | None
    on_crash: OnCrash
    isolation: Isolation | None
    on_success: Hook | Sequence[Hook]
    on_failure: Hook | Sequence[Hook]


@dataclass(frozen=True)
class TaskDeclaration:
    """A function that workers run for the tasks of its name.

    *max_attempts*, *timeout* (in seconds) and *backoff* default to those of the queue; *rate*, *burst* and
    *max_running* are stored with the queue.  With *batch* above 1, one call takes up to that many tasks.  *priority*
    and *expires* (in seconds) are those of calls without their own.  A task whose function raises one of *give_up_on*,
    or none of *retry_on*, is dead at once; `Retry`, a timeout and a crash do not depend on *retry_on*.
    *result_ttl* is how long a result is kept: None for ever, 0 not at all, and by default an hour, or as long as the
    queue keeps done tasks.  Here it is in milliseconds, and None for the default.
    """

    name: str
    function: Callable[..., Any]
    signature: Signature
    is_async: bool
    queue: str = "default"
    priority: int = 0
    expires: float | None = None
    max_attempts: int | None = None
    retry_on: tuple[type[BaseException], ...] | None = None
    give_up_on: tuple[type[BaseException], ...] = ()
    result_ttl: int | None = None
    timeout: float | None = None
    backoff: Policy | None = None
    rate: float | None = None
    burst: float | None = None
    max_running: int | None = None
    key: Key | None = None
    on_crash: OnCrash = "retry"
    batch: int = 1
    isolation: Isolation | None = None
    on_success: tuple[Hook, ...] = ()
    on_failure: tuple[Hook, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings to store with the queue; empty if none were declared."""
        values = {"rate": self.rate, "burst": self.burst, "max_running": self.max_running}
        return {name: value for name, value in values.items() if value is not None}

    @cached_property
    def silent(self) -> bool:
        """True if a returned None is not saved as a result."""
        return self.signature.returns in (None, NoneType, Any)

    def arguments(self, task: Task[Any]) -> dict[str, Any]:
        """Return the arguments of a task by name; raise `Refused` if they do not match."""
        try:
            return self.signature.decode(task.payload.get("args", {}))
        except (msgspec.ValidationError, TypeError, NameError) as error:
            raise Refused(f"SERIALIZATION_ERROR: the arguments are not those of {self.name}: {error}") from error

    def is_final(self, error: BaseException) -> bool:
        """Return whether the task is dead after *error*, however many attempts are left."""
        if self.retry_on is None or isinstance(error, Retry):
            return isinstance(error, self.give_up_on)
        return isinstance(error, self.give_up_on) or not isinstance(error, self.retry_on)

    def of_batch(self, arguments: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the arguments of one call for the tasks with these."""
        [name] = self.signature.required
        return {name: [one[name] for one in arguments]}

    def result(self, value: Any, largest: int = LARGEST) -> str | None:
        """Return the result to save for a function that returned *value*, as JSON text; None if there is none.

        Raise `Refused` for one that cannot be saved: the task is dead, because another run would repeat its work.
        """
        if self.batch > 1 or self.result_ttl == 0 or (value is None and self.silent):
            return None
        try:
            return Codec(largest=largest).encode(msgspec.to_builtins(value, str_keys=True))
        except (TypeError, ValueError, RecursionError) as error:
            raise unsaved(error) from error


def unsaved(error: Exception) -> Refused:
    """Return the outcome of a task whose result cannot be saved."""
    return Refused(f"SERIALIZATION_ERROR: the work is done, but its result cannot be saved: {error}")


@dataclass(frozen=True)
class SubscriberDeclaration:
    """A function that is called with each event of a stream, in order, or in order for each key where it is *in_group*.

    For an event that still fails after *max_attempts* calls, *then* says whether the consumer stops, or skips it and
    publishes it to the stream *dead_letters*.
    """

    stream: str
    consumer: str
    """The name of the consumer, or of the group."""
    in_group: bool
    function: Callable[..., Any]
    is_async: bool
    type: Any
    max_attempts: int
    backoff: Policy
    then: Then
    dead_letters: str

    @property
    def kind(self) -> str:
        """The kind of name that *consumer* is."""
        return "group" if self.in_group else "consumer"

    @property
    def reader(self) -> tuple[str, str, str]:
        """The stream, and the consumer or group, that have one function."""
        return self.stream, self.kind, self.consumer

    def dead_letter(self, event: Event[Any], error: BaseException) -> NewEvent:
        """Return the event to publish to the stream *dead_letters* for a skipped *event*."""
        payload, offset = event.payload, str(event.offset)
        more = {self.kind: self.consumer, "offset": offset, "error": explained(error)}
        plain = payload.text if isinstance(payload, Undecodable) else msgspec.to_builtins(payload, str_keys=True)
        return NewEvent(plain, event.key, {**event.headers, **more})


@dataclass(frozen=True)
class ListenerDeclaration:
    """A function that is called with each notification of some channels."""

    channels: tuple[str, ...]
    function: Callable[..., Any]
    is_async: bool
    type: Any


@dataclass(frozen=True)
class OutboxDeclaration(TaskDeclaration):
    """A function that delivers the messages of an outbox, which are the tasks of its queue."""

    ordered: bool = False
    type: Any = None

    def arguments(self, task: Task[Any]) -> dict[str, Any]:
        """Return the message of a task."""
        return {"message": message_of(task)}


def check_payload(
    declaration: SubscriberDeclaration | ListenerDeclaration, message: Event[Any] | Notification[Any]
) -> None:
    """Raise `Refused` for a message whose payload does not match the function's annotation."""
    if isinstance(message.payload, Undecodable):
        name = declaration.function.__name__
        raise Refused(f"SERIALIZATION_ERROR: the payload is not what {name} takes: {message.payload.error}")


@dataclass(frozen=True)
class ScheduleDeclaration:
    """A task that is enqueued at certain times, with *args*, which are JSON values by name."""

    name: str
    when: str
    tz: str
    task: TaskDeclaration
    args: dict[str, Any]
    catch_up: CatchUp


def declare_task(function: Callable[..., Any], name: str | None = None, **options: Any) -> TaskDeclaration:
    """Return the declaration with these `TaskOptions`, which are checked here."""
    if not callable(function):
        raise TypeError(f"a task is a function, not {type(function).__name__}: write @app.task or @app.task(…)")
    if isinstance(function, Function):
        raise TypeError(f"{function.declaration.name!r} is a task already: one @app.task is enough")
    if unknown := [option for option in options if option not in _CHECKS]:
        raise TypeError(f"a task has no option {', '.join(unknown)}; the options are: name, {', '.join(_CHECKS)}")
    name = checks.name("task", function.__name__ if name is None else name)
    given = {
        option: _CHECKS[option](value)
        for option, value in options.items()
        if value is not None or option == "result_ttl"
    }
    is_async = inspect.iscoroutinefunction(function)
    if is_async and "isolation" in given:
        raise ValueError(f"{name} is async and runs in the worker's loop: isolation='process' is for plain functions")
    if "burst" in given and "rate" not in given:
        raise ValueError(f"burst of task {name!r} is the size of the bucket of a rate: pass rate= too")
    signature = Signature(function, name, batch=given.get("batch", 1) > 1)
    return TaskDeclaration(name, function, signature, is_async, **given)


def declare_outbox(function: Callable[..., Any], name: str, ordered: bool) -> OutboxDeclaration:
    """Return the declaration of the outbox *name*, for a function that takes a message, by any name, and no result."""
    what, given = function.__name__, payload_type(function, Message)
    is_async, signature = inspect.iscoroutinefunction(function), Signature(lambda message: None, what)
    more: dict[str, Any] = {"queue": PREFIX + name, "result_ttl": 0, "ordered": ordered, "type": given}
    return OutboxDeclaration(what, function, signature, is_async, **more)


def declare_schedule(
    task: TaskDeclaration, *, when: str, name: str | None, tz: str, args: Mapping[str, Any] | None, catch_up: CatchUp
) -> ScheduleDeclaration:
    """Return the declaration of a schedule that enqueues *task*."""
    parse(when, tz)
    if required := [one for one in task.signature.required if one not in (args or {})]:
        raise TypeError(f"a schedule of {task.name!r} has no value for {required[0]!r}: give the schedule args={{…}}")
    name = checks.name("schedule", task.name if name is None else name)
    catch_up = checks.choice("catch_up", catch_up, CatchUp)
    return ScheduleDeclaration(name, when, tz, task, task.signature.encode((), args or {}), catch_up)


def _key(given: Any) -> Any:
    if not (isinstance(given, str) or callable(given)):
        raise TypeError(
            f"key is a template such as '{{to}}', or a function of the arguments, not {type(given).__name__}"
        )
    return given


def _hooks(what: str, given: Any) -> tuple[Hook, ...]:
    hooks = (given,) if callable(given) else tuple(given)
    for hook in hooks:
        if not callable(hook):
            raise TypeError(f"{what} is a function or a list of functions, not {type(hook).__name__}")
    return hooks


def _errors(what: str, given: Any) -> tuple[type[BaseException], ...]:
    errors = given if isinstance(given, tuple) else (given,)
    for error in errors:
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            raise TypeError(f"{what} is an exception class or a tuple of them, not {error!r}")
    return errors


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "queue": partial(checks.name, "queue"),
    "priority": partial(checks.count, "priority", least=-(2**31), most=2**31 - 1),
    "expires": lambda value: checks.milliseconds("expires", value, least=1) / 1000,
    "max_attempts": partial(checks.count, "max_attempts", least=1),
    "retry_on": partial(_errors, "retry_on"),
    "give_up_on": partial(_errors, "give_up_on"),
    "result_ttl": lambda value: checks.FOREVER if value is None else checks.milliseconds("result_ttl", value),
    "timeout": lambda value: checks.milliseconds("timeout", value, least=1) / 1000,
    "backoff": retry.policy,
    "rate": partial(checks.positive, "rate"),
    "burst": checks.burst,
    "max_running": partial(checks.count, "max_running", least=1),
    "key": _key,
    "on_crash": partial(checks.choice, "on_crash", choices=OnCrash),
    "batch": partial(checks.count, "batch", least=1),
    "isolation": partial(checks.choice, "isolation", choices=Isolation),
    "on_success": partial(_hooks, "on_success"),
    "on_failure": partial(_hooks, "on_failure"),
}
"""The check of each option of a task; None is the default, but for result_ttl."""
