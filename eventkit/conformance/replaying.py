"""What the history of tasks says, to whoever reads nothing else."""

from typing import Any

from eventkit import EventKit
from eventkit.records import Event

HISTORY = "eventkit.tasks"

FIELDS = ["queue", "id", "kind", "attempt", "worker", "priority", "run_at", "wait_ms", "run_ms", "reason", "error"]

_LEADS: dict[str, tuple[set[str | None], str]] = {
    "enqueued": ({None}, "waiting"),
    "started": ({"waiting"}, "running"),
    "succeeded": ({"running"}, "done"),
    "retried": ({"running"}, "waiting"),
    "lapsed": ({"running"}, "waiting"),
    "released": ({"running"}, "waiting"),
    "snoozed": ({"running"}, "waiting"),
    "failed": ({"running"}, "failing"),
    "dead": ({"failing", "waiting"}, "dead"),
    "expired": ({"waiting"}, "dead"),
    "requeued": ({"dead"}, "waiting"),
    "cancelled": ({"waiting", "running"}, "gone"),
    "purged": ({"dead"}, "gone"),
}
"""From which states each kind of event leads, and to which."""


class Replay:
    """The tasks of some queues as their events tell them: state and attempts, by id.

    It is an error if an event does not follow from those before it.
    """

    def __init__(self, *queues: str) -> None:
        self._queues = queues
        self._last: dict[int, str] = {}
        self.tasks: dict[int, tuple[str | None, int]] = {}

    def follow(self, events: list[Event[Any]]) -> None:
        """Take the events in."""
        for event in events:
            if event.payload["queue"] in self._queues:
                assert event.key == f"{event.payload['queue']}:{event.payload['id']}"
                self._step(event.payload)

    def _step(self, step: dict[str, Any]) -> None:
        assert list(step) == FIELDS
        id, kind = step["id"], step["kind"]
        state, attempt = self.tasks.get(id, (None, 0))
        before, after = _LEADS[kind]
        assert state in before, f"{step} of a task that is {state}"
        lowered = step["reason"] == "exhausted"  # Perhaps max_attempts was lowered while the task waited.
        assert kind != "dead" or lowered or self._last[id] in ("failed", "lapsed"), f"{step} after {self._last[id]}"
        attempt = attempt + 1 if kind == "started" else 0 if kind == "requeued" else attempt
        assert step["attempt"] == attempt, f"{step} after {attempt} attempts"
        of_attempt = kind == "started" or state in ("running", "failing") or self._died(step)
        assert (step["worker"] is not None) == of_attempt, f"{step} of a task that is {state}"
        assert (step["wait_ms"] is not None) == (kind == "started")
        assert (step["run_ms"] is not None) == (state == "running")
        self.tasks[id] = (after, attempt - 1 if kind in ("released", "snoozed") else attempt)
        self._last[id] = kind

    def _died(self, step: dict[str, Any]) -> bool:
        """Whether a lapse of the same moment has ended the attempt that the task died in."""
        return step["kind"] in ("dead", "expired") and self._last[step["id"]] == "lapsed" and step["error"] is not None


def history(kit: EventKit, queue: str = "q") -> list[dict[str, Any]]:
    """All that has happened to the tasks of a queue."""
    return [event.payload for event in kit.stream(HISTORY).read() if event.payload["queue"] == queue]


def kinds(kit: EventKit, queue: str = "q", *, id: int | None = None) -> list[str]:
    """The same in a word each; that of one task, if its id is given."""
    return [step["kind"] for step in history(kit, queue) if id in (None, step["id"])]
