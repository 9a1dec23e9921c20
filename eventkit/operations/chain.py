"""What is asked of a database when the end of a task is the beginning of others."""

from __future__ import annotations

from . import Operation, Plan
from .collected import CollectedTask, enqueue


class AckThen(Operation[bool], frozen=True):
    """Finish a task by *ack* and enqueue *tasks*, in whichever queues; nothing of it if the task is no longer ours."""

    ack: Operation[bool]
    tasks: list[CollectedTask]

    def plan(self) -> Plan[bool]:
        """The ack first, whose row nobody else can finish from then on, and which makes room for the others."""
        if not (yield from self.ack.plan()):
            return False
        yield from enqueue(self.tasks).plan()
        return True
