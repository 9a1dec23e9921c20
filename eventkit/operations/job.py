"""What is asked of a database about jobs: tasks that are calls of a URL, in whatever queue."""

from __future__ import annotations

from typing import Any, ClassVar

from ..codec import Codec
from ..records import TaskInfo
from . import Operation, Rows
from .queue import task_info

JOB = '{"task":"eventkit.webhook",'
"""What the payload of a job's task begins with."""

_codec = Codec()


class GetJob(Operation[TaskInfo[Any] | None], frozen=True):
    """A job by its task's id, in whatever queue and state."""

    writes: ClassVar[bool] = False
    id: int
    beginning: str = JOB

    def decode(self, rows: Rows) -> TaskInfo[Any] | None:
        """The task, or None."""
        return task_info(rows[0], _codec) if rows else None


class ListJobs(Operation[list[TaskInfo[Any]]], frozen=True):
    """Jobs by id, those of one queue and in one state if that is said, behind the first *skip* of them."""

    writes: ClassVar[bool] = False
    queue: str | None
    state: str | None
    limit: int
    skip: int
    beginning: str = JOB

    def decode(self, rows: Rows) -> list[TaskInfo[Any]]:
        """One task a row."""
        return [task_info(row, _codec) for row in rows]
