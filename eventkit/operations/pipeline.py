"""What is asked of a database about the pipelines that run on it."""

from __future__ import annotations

from typing import ClassVar

from ..records import PipelineInfo
from . import Operation, Rows


class SavePipeline(Operation[None], frozen=True):
    """Note how a pipeline is doing: *rows* more since the last note, up to the batch *batch*.

    What is None stays as it was, but for the error.
    """

    name: str
    source: str
    sink: str
    state: str
    batch: int | None
    rows: int
    lag: int | None
    error: str | None

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class ListPipelines(Operation[list[PipelineInfo]], frozen=True):
    """All pipelines by name."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[PipelineInfo]:
        """One pipeline a row."""
        return [PipelineInfo(*row) for row in rows]


class RemovePipeline(Operation[bool], frozen=True):
    """Forget a pipeline; False if there is none of that name."""

    name: str

    def decode(self, rows: Rows) -> bool:
        """Whether there was one."""
        return bool(rows)
