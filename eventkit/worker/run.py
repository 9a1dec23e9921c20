"""`Run`: one call of a task's function."""

import asyncio
import contextvars
from collections.abc import Coroutine
from time import monotonic
from typing import Any

from ..records import Task
from .routines import Routine

CANCELLED, TIMEOUT, SHUTDOWN = "cancelled", "timeout", "shutdown"
"""Why a run may be stopped: its task was deleted or lost; it takes too long; the worker ends."""


class Run:
    """One call of a task's function, for one task or a batch of them, from the claim to its end."""

    __slots__ = (
        "arguments",
        "began",
        "context",
        "coroutine",
        "got",
        "lane",
        "over",
        "routine",
        "settled_apart",
        "span",
        "stopped",
        "stuck",
        "tasks",
        "timer",
        "variables",
    )

    def __init__(self, tasks: list[Task[Any]], routine: Routine, got: float) -> None:
        self.tasks = tasks
        self.routine = routine
        self.got = got
        self.context: Any = None
        self.lane: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.span: Any = None
        self.stopped: str | None = None
        self.over = False
        """Whether the end was reported already, although the function still runs."""
        self.stuck = False
        """Whether it goes on although it was stopped, and keeps its slot."""
        self.settled_apart = False
        self.began = 0.0
        self.arguments: dict[str, Any]
        self.coroutine: Coroutine[Any, Any, Any]
        self.variables: contextvars.Context

    @property
    def settled(self) -> bool:
        """Whether the function has acked its task itself, in a transaction of its own."""
        return self.settled_apart or (self.context is not None and self.context.settled)

    def expired(self, task: Task[Any]) -> bool:
        """Whether *task* has expired since it was claimed: by the database's clock, and what ours says has passed."""
        if task.expires_ms is None:
            return False
        claimed_ms = task.lease_expires_ms - task.lease_ms
        return claimed_ms + (monotonic() - self.got) * 1000 >= task.expires_ms


def fields(task: Task[Any], routine: Routine | None) -> dict[str, Any]:
    """What log records have of a task; its name is empty where nobody has declared it."""
    name = "" if routine is None else routine.name
    return {"task_id": task.id, "task_name": name, "queue": task.queue, "attempt": task.attempt}
