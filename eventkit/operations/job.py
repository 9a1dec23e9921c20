"""What is asked of a database about jobs: tasks that are calls of a URL, in whatever queue.

A task is a job by how its payload begins, which its column ``job`` says.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..codec import Codec
from ..records import TaskInfo
from . import Operation, Rows
from .queue import task_info

_codec = Codec()


class GetJob(Operation[TaskInfo[Any] | None], frozen=True):
    """A job by its task's id, in whatever queue and state."""

    writes: ClassVar[bool] = False
    id: int

    def decode(self, rows: Rows) -> TaskInfo[Any] | None:
        """The task, or None."""
        return task_info(rows[0], _codec) if rows else None


class ListJobs(Operation[list[TaskInfo[Any]]], frozen=True):
    """Jobs of all queues by id, those in one state if that is said, behind the first *skip* of them."""

    writes: ClassVar[bool] = False
    state: str | None
    limit: int
    skip: int

    def decode(self, rows: Rows) -> list[TaskInfo[Any]]:
        """One task a row."""
        return [task_info(row, _codec) for row in rows]


class ListJobsOf(Operation[list[TaskInfo[Any]]], frozen=True):
    """The same of one queue, by an index of its own."""

    writes: ClassVar[bool] = False
    queue: str
    state: str | None
    limit: int
    skip: int

    def decode(self, rows: Rows) -> list[TaskInfo[Any]]:
        """One task a row."""
        return [task_info(row, _codec) for row in rows]
