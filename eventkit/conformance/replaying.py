"""The state of tasks, reconstructed from their history alone."""

from typing import Any

from eventkit import EventKit
from eventkit.values import Event

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
"""The states before each kind of event, and the state after it."""


class Replay:
    """The tasks of some queues as their history describes them: state and attempts, by id.

    An event that cannot follow the earlier ones is an error.
    """

    def __init__(self, *queues: str) -> None:
        self._queues = queues
        self._last: dict[int, str] = {}
        self.tasks: dict[int, tuple[str | None, int]] = {}

    def follow(self, events: list[Event[Any]]) -> None:
        """Apply the events."""
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
        lowered = step["reason"] == "exhausted"  # A configuration may have lowered max_attempts while the task waited.
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
        """Return whether the attempt in which the task died ended by a lapse at the same moment."""
        return step["kind"] in ("dead", "expired") and self._last[step["id"]] == "lapsed" and step["error"] is not None


def history(kit: EventKit, queue: str = "q") -> list[dict[str, Any]]:
    """Return the history of the tasks of a queue."""
    return [event.payload for event in kit.stream(HISTORY).read() if event.payload["queue"] == queue]


def kinds(kit: EventKit, queue: str = "q", *, id: int | None = None) -> list[str]:
    """Return the kinds of the events, of one task if its id is given."""
    return [step["kind"] for step in history(kit, queue) if id in (None, step["id"])]
