"""The outcome of a run: the function of a task, its arguments, and the meaning of its end."""

from collections.abc import Sequence
from types import NoneType
from typing import Any, NamedTuple

import msgspec

from ..checks import text
from ..codec import LARGEST, Codec, Undecodable
from ..handling import Permanent, Retry, Snooze, trace
from ..operations.finish import Fail
from ..retry import delay_after, encode
from ..values import Event, NewEvent, Notification, Task
from .declarations import ListenerDeclaration, SubscriberDeclaration, TaskDeclaration
from .registry import Registry

NO_RESULT: Any = object()
"""The result of a task that returns none."""


class Refused(Exception):
    """Raised for a task that cannot be run, with the error and the *reason* of its dead letter."""

    def __init__(self, error: str, reason: str = "failed") -> None:
        super().__init__(error)
        self.reason = reason


class Done(NamedTuple):
    """The task is done; *result* is saved unless it is `NO_RESULT`."""

    result: Any = NO_RESULT


class Again(NamedTuple):
    """The run failed: the next attempt is after *delay* seconds, or by the queue's policy."""

    delay: float | None
    error: str


class Dead(NamedTuple):
    """The task has no further attempt: none can succeed, or they are used up."""

    error: str
    reason: str = "failed"


class Snoozed(NamedTuple):
    """The task is put back for *delay* seconds; the attempt does not count."""

    delay: float


Outcome = Done | Again | Dead | Snoozed


def resolve(app: Registry, payload: Any) -> TaskDeclaration:
    """Return the declaration of the task that *payload* names; raise `Refused` if there is none."""
    if not isinstance(payload, dict) or not isinstance(name := payload.get("task"), str):
        raise Refused(
            'NOT_A_TASK: the payload is not {"task": name, "args": {…}}, of a declared task: call enqueue() of the '
            "declared function, or put plain payloads into a queue for which no App declares tasks, for queue.work()",
            "poison",
        )
    declaration = app.tasks.get(name)
    if declaration is None:
        raise Refused(
            f"RESOLUTION_ERROR: this app declares no task {name!r}: import its module, or requeue() the task when "
            f"its worker is deployed"
        )
    return declaration


def decode(declaration: TaskDeclaration, payload: Any) -> dict[str, Any]:
    """Return the arguments of a task by name; raise `Refused` if they do not match."""
    try:
        return declaration.signature.decode(payload.get("args", {}))
    except (msgspec.ValidationError, TypeError, NameError) as error:
        raise Refused(f"SERIALIZATION_ERROR: the arguments are not those of {declaration.name}: {error}") from error


def batch_arguments(declaration: TaskDeclaration, decoded: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of one call for several tasks."""
    [name] = declaration.signature.required
    return {name: [one[name] for one in decoded]}


def succeeded(declaration: TaskDeclaration, value: Any, largest: int = LARGEST) -> Outcome:
    """Return the outcome of a function that has returned *value*.

    A result that cannot be saved makes the task dead: another run would repeat its work.
    """
    if declaration.batch > 1 or (value is None and declaration.signature.returns in (None, NoneType, Any)):
        return Done()
    try:
        result = msgspec.to_builtins(value, str_keys=True)
        Codec(largest=largest).encode(result)
    except (TypeError, ValueError, RecursionError) as error:
        return Dead(text(f"SERIALIZATION_ERROR: the work is done, but its result cannot be saved: {error}"))
    return Done(result)


def failed(declaration: TaskDeclaration, task: Task[Any], error: BaseException) -> Outcome:
    """Return the outcome of a run of *task* that has raised *error*."""
    if isinstance(error, Refused):
        return Dead(text(str(error)), error.reason)
    if isinstance(error, Permanent):
        return Dead(text(str(error)))
    if isinstance(error, Snooze):
        return Snoozed(_seconds(error.delay))
    told = explained(error)
    if declaration.retries is not None and task.attempt > declaration.retries:
        # The row of a task that was enqueued without its declaration may allow more attempts.
        return Dead(told, "exhausted")
    if isinstance(error, Retry) and error.delay is not None:
        return Again(_seconds(error.delay), told)
    policy = declaration.backoff
    return Again(None if policy is None else delay_after(task.attempt, encode(policy)) / 1000, told)


def explained(error: BaseException) -> str:
    """Return the text of *error* to store with a task, or with a skipped event."""
    return text(str(error) if isinstance(error, Retry | Refused) else trace(error))


def readable(declaration: SubscriberDeclaration | ListenerDeclaration, message: Event[Any] | Notification[Any]) -> None:
    """Raise `Refused` for a message whose payload does not match the function's annotation."""
    if isinstance(message.payload, Undecodable):
        taker = declaration.function.__name__
        raise Refused(f"SERIALIZATION_ERROR: the payload is not what {taker} takes: {message.payload.error}")


def skipped(declaration: SubscriberDeclaration, event: Event[Any], error: BaseException) -> NewEvent:
    """Return the event to publish to the stream of dead letters in place of *event*."""
    payload = event.payload
    return NewEvent(
        payload.text if isinstance(payload, Undecodable) else msgspec.to_builtins(payload, str_keys=True),
        event.key,
        {
            **event.headers,
            "consumer": declaration.consumer,
            "offset": str(event.offset),
            "error": explained(error),
        },
    )


def settle(queue: Any, task: Task[Any], outcome: Outcome) -> Any:
    """Store *outcome* of *task* in *queue*; return its answer: False if the lease was lost."""
    match outcome:
        case Done(result) if result is NO_RESULT:
            return queue.ack(task)
        case Done(result):
            return queue.ack(task, result=result)
        case Again(delay, error):
            return queue.retry(task, delay=delay, error=error)
        case Snoozed(delay):
            return queue.snooze(task, delay)
        case Dead(error, reason):
            return queue._execute(Fail(task.id, task.token, error, reason))


def _seconds(delay: Any) -> float:
    return float(delay.total_seconds() if hasattr(delay, "total_seconds") else delay)
