"""Operations on results: save them, and wait for them.

An *id* is JSON: the number of a task, or a string.  A waiter for a task's result is also woken by its death.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from ..errors import TaskFailed
from . import Operation, Outlook, Plan, Probe, Rows, nothing
from .claim import Sweep
from .finish import Ack, AckMany, Ended, Finish, Held

TaskResult = tuple[int, str, str]
"""A task's id, its result as JSON text, and its queue."""


class SaveResult(Operation[None], frozen=True):
    """Save a value under an id for *ttl* milliseconds."""

    id: str
    value: str
    ttl: int
    decode = nothing


class SaveTaskResult(Operation[None], frozen=True):
    """Save a value under an id for an hour, or for as long as the queue keeps done tasks if that is longer."""

    id: str
    value: str
    queue: str
    decode = nothing


class AckWithResult(Operation[bool], frozen=True):
    """Finish a task and save its result, both or neither."""

    id: int
    token: int
    queue: str
    result: str

    def plan(self) -> Plan[bool]:
        """Ack the task, in one statement if possible, and save the result if the lease was still held."""
        ended: list[Ended] = [(self.id, self.token, self.result)]
        if not (yield Ack(self.id, self.token)) and not (yield from Finish(ended).rows()):
            return False
        yield SaveTaskResult(str(self.id), self.result, self.queue)
        return True


class SaveTaskResults(Operation[None], frozen=True):
    """`SaveTaskResult` for several tasks."""

    results: list[TaskResult]


class AckManyWithResults(Operation[list[int]], frozen=True):
    """Finish tasks and save their results, all or none; return the ids of those whose lease was still held.

    With *careful*, lock all of them in order first, as `FinishMany` does.
    """

    held: list[Held]
    results: list[TaskResult]
    careful: bool

    def plan(self) -> Plan[list[int]]:
        """Ack the tasks, in one statement if possible, and save the results of those whose lease was still held."""
        done = [] if self.careful else [id for (id,) in (yield AckMany(self.held))]
        if len(done) < len(self.held):
            gone, texts = set(done), {id: text for id, text, _ in self.results}
            ended = [(id, token, texts.get(id)) for id, token in self.held if id not in gone]
            done += yield from Finish(ended).plan()
        ours = set(done)
        if saved := [row for row in self.results if row[0] in ours]:
            yield SaveTaskResults(saved)
        return sorted(done)


class GetResult(Operation[Any], frozen=True):
    """Read the value saved under an id, or *default*."""

    writes: ClassVar[bool] = False
    id: str
    default: Any

    def decode(self, rows: Rows) -> Any:
        return msgspec.json.decode(rows[0][0]) if rows else self.default


class AwaitResult(Operation[tuple[Any] | TaskFailed | None], frozen=True):
    """Read the value saved under an id, or the failure of the dead *task*; None if there is neither yet."""

    first_alone: ClassVar[bool] = True
    id: str
    task: int | None

    def plan(self) -> Plan[tuple[Any] | TaskFailed | None]:
        """Read; if the task is dead by the clock, move it and read again: a worker may just have finished it."""
        [(value, queue, moved, reason, error)] = yield self
        if value is None and queue is not None and not moved:
            yield from Sweep(queue).plan()
            [(value, queue, moved, reason, error)] = yield self
        if value is not None:
            return (msgspec.json.decode(value),)
        return TaskFailed(self.task, reason, error) if moved and self.task is not None else None


class ResultAhead(Probe, frozen=True):
    """A probe that is ready when there is a result or its task is dead, and due when the task may die by the clock."""

    id: str
    task: int | None

    @property
    def subjects(self) -> tuple[str, ...]:
        """The result.  A dying task announces itself under it too."""
        return (f"result:{self.id}",)

    def decode(self, rows: Rows) -> Outlook:
        ready, due, now = rows[0]
        return Outlook(bool(ready), due, now)
