"""What a task of an application comes to: which function it is for, with which arguments, and what its end means.

All of it is plain: nothing here runs a function or reaches a database but `settle`, which passes on what the queue
answers.  Whoever runs tasks, a worker or a test, follows the same rules by these.
"""

from collections.abc import Sequence
from types import NoneType
from typing import Any, NamedTuple

import msgspec

from ..arguments import text
from ..codec import LARGEST, Codec, Undecodable
from ..handling import Permanent, Retry, Snooze, trace
from ..operations.finish import Fail
from ..records import Event, NewEvent, Notification, Task
from ..retry import delay_after, encode
from .declarations import ListenerDeclaration, SubscriberDeclaration, TaskDeclaration
from .registry import Registry

NO_RESULT: Any = object()
"""The result of a task that leaves none."""


class Refused(Exception):
    """Raised for a task that cannot be run: the text is what its dead letter says, and *reason* its reason."""

    def __init__(self, error: str, reason: str = "failed") -> None:
        super().__init__(error)
        self.reason = reason


class Done(NamedTuple):
    """The task is done; *result* is saved unless it is `NO_RESULT`."""

    result: Any = NO_RESULT


class Again(NamedTuple):
    """The run failed: another attempt after *delay* seconds, or when the queue says."""

    delay: float | None
    error: str


class Dead(NamedTuple):
    """No further attempt follows: none can succeed, or the task has had them all."""

    error: str
    reason: str = "failed"


class Snoozed(NamedTuple):
    """Not now, but in *delay* seconds; the attempt does not count."""

    delay: float


Outcome = Done | Again | Dead | Snoozed


def resolve(app: Registry, payload: Any) -> TaskDeclaration:
    """What was declared of the task that *payload* names, or `Refused`."""
    if not isinstance(payload, dict) or not isinstance(name := payload.get("task"), str):
        raise Refused(
            'NOT_A_TASK: the payload is not {"task": name, "args": {…}}, as of a declared task: call enqueue() of the '
            "declared function, or put plain payloads into a queue for which no App declares tasks, for queue.work()",
            "poison",
        )
    declaration = app.tasks.get(name)
    if declaration is None:
        raise Refused(
            f"RESOLUTION_ERROR: this app declares no task {name!r}: import the module that does, or requeue() the task "
            f"when one is deployed"
        )
    return declaration


def decode(declaration: TaskDeclaration, payload: Any) -> dict[str, Any]:
    """The arguments of a task by name, or `Refused`."""
    try:
        return declaration.signature.decode(payload.get("args", {}))
    except (msgspec.ValidationError, TypeError, NameError) as error:
        raise Refused(f"SERIALIZATION_ERROR: the arguments are not those of {declaration.name}: {error}") from error


def batch_arguments(declaration: TaskDeclaration, decoded: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The arguments of one call for several tasks."""
    [name] = declaration.signature.required
    return {name: [one[name] for one in decoded]}


def succeeded(declaration: TaskDeclaration, value: Any, largest: int = LARGEST) -> Outcome:
    """What it means that the function has returned *value*.

    A result that cannot be saved is the task's death: to run it again would do its work twice.
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
    """What it means that a run of *task* has ended with *error*."""
    if isinstance(error, Refused):
        return Dead(text(str(error)), error.reason)
    if isinstance(error, Permanent):
        return Dead(text(str(error)))
    if isinstance(error, Snooze):
        return Snoozed(_seconds(error.delay))
    told = explained(error)
    if declaration.retries is not None and task.attempt > declaration.retries:
        # A task that was enqueued otherwise than by its declaration may be allowed more by its row.
        return Dead(told, "exhausted")
    if isinstance(error, Retry) and error.delay is not None:
        return Again(_seconds(error.delay), told)
    policy = declaration.backoff
    return Again(None if policy is None else delay_after(task.attempt, encode(policy)) / 1000, told)


def explained(error: BaseException) -> str:
    """What is kept of *error*, with a task or with an event that was skipped."""
    return text(str(error) if isinstance(error, Retry | Refused) else trace(error))


def readable(declaration: SubscriberDeclaration | ListenerDeclaration, message: Event[Any] | Notification[Any]) -> None:
    """`Refused` for a message whose payload is not what the function is annotated to take."""
    if isinstance(message.payload, Undecodable):
        taker = declaration.function.__name__
        raise Refused(f"SERIALIZATION_ERROR: the payload is not what {taker} takes: {message.payload.error}")


def skipped(declaration: SubscriberDeclaration, event: Event[Any], error: BaseException) -> NewEvent:
    """What is published in place of an event that its subscriber skips, to the stream of its dead letters."""
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
    """Tell *queue* what has come of *task*; what it answers: False if the task was no longer ours."""
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
