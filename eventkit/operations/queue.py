"""Operations on queues: their tasks, histories and settings; the settings of streams and channels."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import msgspec

from .. import retry
from ..checks import SHOWN_STATES
from ..codec import Codec, as_text, encode_json
from ..errors import Unavailable
from ..values import (
    ChannelSettings,
    ClusterLimit,
    DeadTasks,
    QueueSettings,
    QueueStats,
    StreamSettings,
    TaskInfo,
    seconds,
)
from . import Operation, Plan, Procedure, Read, Rows, each, first, first_time, flag, nothing, one, step
from .channel import Notify
from .claim import Sweep
from .finish import Remove, SettleDead

CANCELLED = "eventkit:cancelled"
"""The channel of notifications that a running task was cancelled."""

MOST_COUNTED = 10_000
"""The maximum number that `ReadStats` counts."""


def task_info(row: tuple[Any, ...], codec: Codec) -> TaskInfo[Any]:
    """Return the task of a row that has the fields of `TaskInfo`."""
    id, queue, state, stored, key, stored_headers, *others, result, group = row
    payload, headers = codec.decode_or_wrap(stored, stored_headers)
    value = result and msgspec.json.decode(result)
    columns = [
        id,
        queue,
        SHOWN_STATES[state],
        payload,
        key and as_text(key),
        headers,
        *others,
        value,
        (group and as_text(group)) or None,
    ]
    return TaskInfo(*columns)


_PLAIN = Codec()


def _tasks(self: Any, rows: Rows) -> list[TaskInfo[Any]]:
    return [task_info(row, self.codec) for row in rows]


def _task(self: Any, rows: Rows) -> TaskInfo[Any] | None:
    return task_info(rows[0], self.codec) if rows else None


class GetTask(Read[TaskInfo[Any] | None], frozen=True):
    """Read one task of the queue, in any state."""

    queue: str
    id: int
    codec: Codec
    decode = _task


class _ManyTasks(Read[list[TaskInfo[Any]]], frozen=True):
    queue: str
    limit: int
    codec: Codec
    decode = _tasks


class ListTasks(_ManyTasks, frozen=True):
    """Read the queue's tasks by id, all or those in one state, after an id."""

    state: str | None
    after: int
    group: str | None = None


class PeekTasks(_ManyTasks, frozen=True):
    """Read the tasks that a claim would return, in its order."""


class ListDead(_ManyTasks, frozen=True):
    """Read the queue's dead tasks, newest first, after a sweep, which marks expired tasks dead."""

    writes: ClassVar[bool] = True

    def plan(self) -> Plan[list[TaskInfo[Any]]]:
        yield from Sweep(self.queue).plan()
        return self.decode((yield self))


class GetWebhook(Read[TaskInfo[Any] | None], frozen=True):
    """Read a webhook by its task's id, in any queue and state."""

    id: int
    codec: Codec = _PLAIN
    decode = _task


class ListWebhooks(Read[list[TaskInfo[Any]]], frozen=True):
    """Read webhooks of all queues by id, all or those in one state, after the first *skip* of them."""

    state: str | None
    limit: int
    skip: int
    codec: Codec = _PLAIN
    decode = _tasks


class ListWebhooksOf(_ManyTasks, frozen=True):
    """Read webhooks of one queue as `ListWebhooks` does, by another index."""

    state: str | None
    skip: int


class FindTokens(Read[dict[int, tuple[str, int]]], frozen=True):
    """Find queue and token of the latest claim of tasks by their ids, for existing tasks in any state."""

    ids: list[int]

    def decode(self, rows: Rows) -> dict[int, tuple[str, int]]:
        return {id: (queue, token) for id, queue, token in rows}


class ReadStats(Read[QueueStats], frozen=True):
    """Read the queue's numbers, each counted up to `MOST_COUNTED`."""

    queue: str
    limit: int = MOST_COUNTED + 1

    def decode(self, rows: Rows) -> QueueStats:
        return queue_stats(msgspec.json.decode(rows[0][0]))


def queue_stats(values: list[Any]) -> QueueStats:
    """Return the numbers; due tasks that were not moved yet are counted apart, and are added here to their states."""
    *counts, age, paused = values
    scheduled, ready, running, dead, done, _, due_ready, was_ready, due_dead = counts
    numbers = [scheduled, max(0, ready + due_ready - was_ready), running, dead + due_dead, done]
    approximate = max(*counts, *numbers) > MOST_COUNTED
    scheduled, ready, running, dead, done = (min(number, MOST_COUNTED) for number in numbers)
    seconds = None if age is None else max(0, age) / 1000
    return QueueStats(scheduled, ready, running, dead, done, seconds, bool(paused), approximate)


class ReadSize(Read[int], frozen=True):
    """Read the number of scheduled, ready and running tasks."""

    queue: str
    decode = first


class ReadNextDue(Read[datetime | None], frozen=True):
    """Read when the queue's next task is due: past or present if one is ready."""

    queue: str
    decode = first_time


class Cancel(Procedure[bool], frozen=True):
    """Delete a waiting task, or with *running* a running one, and notify its worker; the key stays reserved."""

    queue: str
    id: int
    running: bool
    decode = flag

    def steps(self) -> Plan[Rows]:
        """Lock the task, delete it, and notify its worker."""
        found = yield step("FindToCancel", queue=self.queue, id=self.id, running=self.running)
        for (leased,) in found:
            # Without a holder, its deletion is a cancellation.
            yield step("Revoke", id=self.id)
            yield from Remove([self.id]).rows()
            if leased:
                yield Notify(CANCELLED, encode_json({"queue": self.queue, "id": self.id}), None)
        return found


class Purge(Operation[int], frozen=True):
    """Delete the queue's tasks in one state, only those that finished long enough ago if a time is given."""

    queue: str
    state: str
    older_than: int | None

    def plan(self) -> Plan[int]:
        """Sweep, so that the states are current; reserve the keys; delete."""
        yield from Sweep(self.queue).plan()
        if self.state == "leased":
            yield step("Abandon", queue=self.queue)
        yield step("ReserveKeysOfState", queue=self.queue, state=self.state, older_than=self.older_than)
        rows = yield self
        yield step("ForgetKeys", limit=2 * len(rows))
        return len(rows)


class Requeue(Operation[int], frozen=True):
    """Make dead tasks, all or these, ready again with their attempts reset, after a sweep."""

    queue: str
    every: bool
    ids: list[int]

    def plan(self) -> Plan[int]:
        yield from Sweep(self.queue).plan()
        return len((yield self))


class Drop(Operation[bool], frozen=True):
    """Delete the queue, its settings, its keys and, with *force*, all tasks left in it."""

    queue: str
    force: bool

    def plan(self) -> Plan[bool]:
        """Find tasks unless *force*; then delete everything, the keys after the tasks that have them."""
        if not self.force and (yield step("FindTasks", queue=self.queue)):
            return False
        triggers = yield from _hold_history(self.queue)
        yield step("Abandon", queue=self.queue)
        yield step("DropTasks", queue=self.queue)
        yield step("DropKeysOfQueue", queue=self.queue)
        yield step("DropSettings", queue=self.queue)
        yield step("DropGroupRates", queue=self.queue)
        yield from _settle(triggers)
        return True


class ListDeadByError(Operation[list[DeadTasks]], frozen=True):
    """Count the queue's dead tasks by reason, code and error, highest first, after a sweep."""

    queue: str
    limit: int
    decode = each(DeadTasks)

    def plan(self) -> Plan[list[DeadTasks]]:
        yield from Sweep(self.queue).plan()
        return self.decode((yield self))


class Triggers(NamedTuple):
    """Whether the triggers of histories are needed, whether they exist, and the remedy for a missing privilege."""

    needed: bool
    there: bool
    obstacle: str | None


class StopHistory(Operation[None], frozen=True):
    """Record nothing, regardless of the queues' settings, until `KeepHistory`."""

    def plan(self) -> Plan[None]:
        yield from _settle((yield from _hold_history())._replace(needed=False))


class KeepHistory(Operation[None], frozen=True):
    """Record again what queues are configured to; a copy of a fair queue gives turns from then on."""

    def plan(self) -> Plan[None]:
        yield from _settle((yield from _hold_history()))
        yield from _share("", False)


def _hold_history(queue: str = "", history: bool = False) -> Plan[Triggers]:
    """Lock the choice of queues that keep a history; return what is needed once *queue* has its new setting."""
    [row] = yield step("HoldHistory", queue=queue, history=history)
    return Triggers(*row)


def _settle(triggers: Triggers) -> Plan[None]:
    """Create or drop the triggers; a missing privilege prevents only their creation."""
    needed, there, obstacle = triggers
    if needed and not there:
        if obstacle is not None:
            raise Unavailable(obstacle)
        yield step("RecordEnqueued")
        yield step("RecordMoved")
        yield step("RecordGone")
    if there and not needed and obstacle is None:
        yield step("ForgetEnqueued")
        yield step("ForgetMoved")
        yield step("ForgetGone")


def _share(queue: str, shared: bool) -> Plan[None]:
    """Create or drop the triggers of fair queues and of limited groups; *queue* is to be *shared* or not."""
    [row] = yield step("HoldSharing", queue=queue, shared=shared)
    needed, there, obstacle = Triggers(*row)
    if needed and not there:
        if obstacle is not None:
            raise Unavailable(obstacle)
        yield step("GiveTurns")
        yield step("Pace")
    if there and not needed and obstacle is None:
        yield step("ForgetTurns")
        yield step("ForgetPace")


MAX_ATTEMPTS = 3
"""The default number of attempts of a task; the statements have the same number."""


class SetPaused(Operation[None], frozen=True):
    """Pause or resume the queue."""

    queue: str
    paused: bool
    decode = nothing


SETTINGS = QueueSettings.__struct_fields__
"""The settings, in the order of `ReadSettings`.  Durations are in milliseconds, *retry* and *weights* are JSON."""

_OF_GROUPS = {"ordered", "on_dead", "fair", "group_max_running", "group_rate", "weights"}
"""The settings after whose change every waiting task is looked at."""


class Configure(Operation[None], frozen=True):
    """Store some settings of the queue and leave the others as they are."""

    queue: str
    changes: dict[str, Any]

    def plan(self) -> Plan[None]:
        """Change the triggers if *history* changes; read the settings, and write the new ones over them."""
        if "history" in self.changes:
            yield from _settle((yield from _hold_history(self.queue, bool(self.changes["history"]))))
        regroups = not _OF_GROUPS.isdisjoint(self.changes)
        if regroups:
            rows = yield ReadSettings(self.queue)
            stored = (dict(zip(SETTINGS, rows[0], strict=True)) if rows else {}) | self.changes
            limited = stored.get("group_max_running") is not None or stored.get("group_rate") is not None
            yield from _share(self.queue, limited or bool(stored.get("fair")))
        yield step("HoldSettings", queue=self.queue)
        [row] = yield ReadSettings(self.queue)
        settings = dict(zip(SETTINGS, row, strict=True))
        changed = settings | self.changes
        yield step("WriteSettings", queue=self.queue, **changed)
        if regroups:
            yield step("DropGroupRates", queue=self.queue)
            yield step("Regroup", queue=self.queue)
        most = changed["max_attempts"] or MAX_ATTEMPTS
        if most < (settings["max_attempts"] or MAX_ATTEMPTS):
            died = yield step("Exhaust", queue=self.queue, most=most)
            if died:
                yield from SettleDead([id for (id,) in died]).rows()


class CreateQueue(Operation[bool], frozen=True):
    """Create a queue that has neither settings nor tasks, with these settings; return False if it exists."""

    queue: str
    changes: dict[str, Any]

    def plan(self) -> Plan[bool]:
        created = bool((yield step("AddQueue", queue=self.queue)))
        if created:
            yield from Configure(self.queue, self.changes).plan()
        return created


class SetClusterLimit(Operation[None], frozen=True):
    """Let at most *max_running* tasks of all these queues run at once; without queues, delete the limit."""

    name: str
    max_running: int
    queues: list[str]

    def plan(self) -> Plan[None]:
        yield step("SaveClusterLimit", name=self.name, max_running=self.max_running, queues=self.queues)
        yield step("TrimClusterLimit", name=self.name, queues=self.queues)


class ListClusterLimits(Read[list[ClusterLimit]], frozen=True):
    """Read the limits over several queues, by name."""

    decode = each(lambda name, most, queues, running: ClusterLimit(name, most, msgspec.json.decode(queues), running))


class FindQueue(Read[bool], frozen=True):
    """Read whether a queue exists: it has settings, or tasks."""

    queue: str
    decode = flag


class ReadSettings(Read[QueueSettings], frozen=True):
    """Read the queue's settings, in the order of `SETTINGS`; no row if it never had any."""

    queue: str

    def decode(self, rows: Rows) -> QueueSettings:
        """Return the settings: durations in seconds, and the policy as a value."""
        if not rows:
            return QueueSettings()
        stored = dict(zip(SETTINGS, rows[0], strict=True))
        stored |= {name: seconds(stored[name]) for name in ("lease", "keep_done", "keep_dead", "key_ttl")}
        policy = stored["retry"]
        stored |= {name: bool(stored[name]) for name in ("history", "strict_keys", "ordered", "fair")}
        stored |= {
            "on_dead": stored["on_dead"] or "continue",
            "weights": msgspec.json.decode(stored["weights"] or "{}"),
        }
        return QueueSettings(**stored | {"retry": policy and retry.decode(policy)})


class ConfigureStream(Operation[None], frozen=True):
    """Store the *given* settings of a topic and leave the others as they are."""

    topic: str
    given: list[str]
    keep: int | None = None
    keep_count: int | None = None
    keep_unconsumed: bool = True
    decode = nothing


class ReadStreamSettings(Read[StreamSettings], frozen=True):
    """Read the settings of a topic, or the defaults."""

    topic: str
    decode = one(
        lambda keep=None, keep_count=None, unconsumed=True: StreamSettings(seconds(keep), keep_count, bool(unconsumed))
    )


class ConfigureChannel(Operation[None], frozen=True):
    """Store the *given* settings of a channel and leave the others as they are."""

    channel: str
    given: list[str]
    keep: int | None = None
    keep_count: int | None = None
    decode = nothing


class ReadChannelSettings(Read[ChannelSettings], frozen=True):
    """Read the settings of a channel, or the defaults."""

    channel: str
    decode = one(lambda *row: ChannelSettings(seconds(row[0]), row[1]) if row else ChannelSettings())
