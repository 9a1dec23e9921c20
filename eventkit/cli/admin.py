"""``eventkit overview``, ``stats``, ``health``, ``check``, ``doctor``, ``migrate``, ``bench``, ``demo`` and ``key``."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from statistics import median
from typing import Annotated, Any
from uuid import uuid4

import typer

from ..errors import EventkitError, UnknownBackend
from ..protocols import EventKit
from ..values import Diagnostic, Overview
from . import settings
from .output import Failed, Result, Table, Watched, answer, document, harmless, listing, note, plain
from .processes import load
from .settings import Json, Url, argument, backend_function, caller, command, flag, group, opened, option, period
from .tasks import QUEUE_COLUMNS, check_queues, queue_rows

commands = group()
keys = group("key", "API keys of the HTTP service.")

Every = Annotated[float, option("SECONDS", "Refresh interval.", min=0.1)]
Watch = Annotated[bool, flag("Refresh until interrupted.", "--watch", "-w")]

_BATCH = 1000
_WAKES = 20


@command(commands)
def overview(kit: EventKit, watch: Watch = False, every: Every = 1.0) -> Watched:
    """Show statistics of the whole database."""
    return Watched(kit.overview, _tables, "the database is empty", every if watch else None)


@command(commands)
def stats(
    kit: EventKit,
    names: Annotated[list[str] | None, argument("QUEUE", "Only these.")] = None,
    watch: Watch = False,
    every: Every = 1.0,
) -> Watched:
    """Show statistics of the queues."""
    check_queues(kit, names or [])

    def read() -> list[dict[str, Any]]:
        found = kit.overview().queues
        return queue_rows({name: found[name] for name in names if name in found} if names else found)

    return Watched(read, lambda rows: [Table.of(QUEUE_COLUMNS, rows)], "there are no queues", every if watch else None)


def _tables(found: Overview) -> tuple[Table, ...]:
    streams = [
        {"stream": name, "events": statistics.events, "head": statistics.head, **consumer}
        for name, statistics in found.streams.items()
        for consumer in (
            [{"consumer": one.name, "offset": one.offset, "lag": one.lag} for one in statistics.consumers] or [{}]
        )
    ]
    schedules = [{"schedule": name, **plain(one)} for name, one in found.schedules.items()]
    locks = [{"lock": name, **plain(one)} for name, one in found.locks.items()]
    return (
        Table.of(QUEUE_COLUMNS, queue_rows(found.queues), "Queues"),
        Table.of(("stream", "events", "head", "consumer", "offset", "lag"), streams, "Streams"),
        Table.of(("schedule", "queue", "next_at", "last_at", "fired", "skipped"), schedules, "Schedules"),
        Table.of(("lock", "holder", "fence", "until"), locks, "Locks"),
        Table(("results",), [[found.results]] if found.results else [], "Results"),
    )


@command(commands)
def health(address: str) -> Result:
    """Check that the database responds.

    Exit code 0 if it does, else 1, for supervisors and containers.
    """
    began = time.monotonic()
    with opened(address) as kit:
        connected = time.monotonic()
        kit.schedules.soonest()
        answered = time.monotonic()
    report = {"healthy": True, "connect_ms": _ms(connected - began), "answer_ms": _ms(answered - connected)}
    return answer(f"healthy: responds in {report['answer_ms']} ms", report)


@command(commands)
def check(
    app: Annotated[str | None, argument("MODULE:APP", "Also check this application.")] = None,
    live: Annotated[bool, flag("Also connect and wait for a notification.", "--live")] = False,
    url: Url = None,
) -> Result:
    """Check the settings, and the app.

    With --live, also the tables of the database, and its notifications.
    """
    from eventkit.kit import backend_of

    declared: dict[str, Any] = {}
    if app is not None:
        loaded = load(app)
        declared = {"tasks": sorted(loaded.tasks), "queues": list(loaded.queues)}
        url = url or settings.from_file().get("url") or loaded.url
    address = settings.url(url)
    scheme = address.partition(":")[0]
    backend_of(address)
    found: dict[str, Any] = {"url": _shown(address), "backend": scheme, **declared}
    text = f"{found['url']} is served by the backend for {scheme}"
    if declared:
        text += f"; {app} has {len(found['tasks'])} tasks in the queues {', '.join(found['queues'])}"
    if live:
        with opened(address) as kit:
            channel = kit.channel("eventkit:check")
            [took] = wakes(channel, 1)
            channel.prune(keep_count=0)
        if took > 2:
            raise Failed(
                f"a notification took {took:.1f} s: notifications do not arrive, and listeners fall back to polling; "
                "behind a pooler, add ?pooler=transaction and ?listen_url= to the URL"
            )
        found["wake_ms"] = _ms(took)
        text += f"; it has the tables, and a notification took {found['wake_ms']} ms"
    return answer(text, found)


def _shown(url: str) -> str:
    from eventkit_migrations import database

    try:
        return database.shown(url)
    except UnknownBackend:  # A third-party backend may have other URLs.
        return f"{url.partition('://')[0]}://…"


def wakes(channel: Any, number: int) -> list[float]:
    """Send notifications; return the seconds from before each commit until a listener in this process receives it."""
    sent: list[float] = []
    received: list[float] = []

    def send() -> None:
        time.sleep(0.05)  # The listener sleeps by then.
        sent.append(time.perf_counter())
        channel.notify(None)

    with channel.listen() as notifications:
        for _ in range(number):
            sender = threading.Thread(target=send)
            sender.start()
            next(notifications)
            received.append(time.perf_counter())
            sender.join()
    return [after - before for before, after in zip(sent, received, strict=True)]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


_WAITING = 300
"""Seconds that a ready task may wait while no worker holds a task of its queue."""

_STUCK = 600
"""Seconds that a consumer with lag may stand still."""

_LATE = 60
"""Seconds after which a due fire is late."""


@command(commands)
def doctor(address: str, json: Json = False) -> None:
    """Diagnose common problems.

    Prints a remedy for each problem. Exit code 1 if there is one that must be fixed.
    """
    diagnostics = examine(address)
    bad = sum(diagnostic.level == "bad" for diagnostic in diagnostics)
    if json:
        document({"ok": not bad, "diagnostics": diagnostics})
    else:
        for diagnostic in diagnostics:
            mark = {"good": "ok  ", "doubtful": "warn", "bad": "BAD "}[diagnostic.level]
            print(f"{mark}  {harmless(diagnostic.what)}")
            if diagnostic.remedy:
                print(f"      → {harmless(diagnostic.remedy)}")
    if bad:
        raise Failed(f"{bad} {'problem' if bad == 1 else 'problems'} found")


def examine(address: str) -> list[Diagnostic]:
    """Return all diagnostics, in reading order."""
    from importlib.metadata import packages_distributions

    found = [
        Diagnostic(
            "bad",
            f"the distribution {name} also installs a package named eventkit: one has overwritten files of the other",
            f"pip uninstall {name} eventkit-db, then pip install eventkit-db",
        )
        for name in sorted({*packages_distributions().get("eventkit", ())} - {"eventkit-db"})
    ]
    found += backend_function(address, "diagnose")(address)
    try:
        with opened(address) as kit:
            found += [Diagnostic(*diagnostic) for diagnostic in _diagnostics(kit)]
    except EventkitError as error:
        found.append(Diagnostic("bad", f"eventkit.connect() failed: {error}"))
    return found


def _diagnostics(kit: EventKit) -> Iterator[tuple[str, str, str]]:
    """Yield the level, description and remedy of each problem of queues, consumers and schedules."""
    overview, now = kit.overview(), datetime.now(UTC)
    for name, stats in overview.queues.items():
        waiting = stats.oldest_ready_age or 0
        if stats.paused and stats.ready:
            paused = f"queue {name} is paused with {stats.ready:,} ready tasks"
            yield "doubtful", paused, f"eventkit queue resume {name}"
        elif waiting > _WAITING and not stats.running:
            yield (
                "bad",
                f"a task in queue {name} has been ready for {waiting:,.0f} s, and no worker holds a task of this queue",
                f"start a worker for it, or check its settings with eventkit queue show {name}",
            )
        if stats.dead:
            yield (
                "doubtful",
                f"queue {name} has {stats.dead:,} dead tasks",
                f"eventkit dead list {name} --by-error shows the errors; then eventkit dead requeue or purge {name}",
            )
    for stream, statistics in overview.streams.items():
        for consumer in statistics.consumers:
            still = (now - consumer.updated_at).total_seconds()
            if consumer.lag and still > _STUCK:
                yield (
                    "bad",
                    f"consumer {consumer.name} of stream {stream} has stood still for {still:,.0f} s "
                    f"with a lag of {consumer.lag:,} events",
                    f"check that it runs and what it logs at offset {consumer.offset}; "
                    f"eventkit stream seek {stream} {consumer.name} skips an event that it cannot process",
                )
    for schedule in kit.schedules.list():
        late = (now - schedule.next_at).total_seconds() if schedule.next_at is not None else 0
        if late > _LATE:
            remedy = "start eventkit scheduler, or call kit.run_scheduler() in a process"
            yield "bad", f"schedule {schedule.name} is {late:,.0f} s overdue", remedy


@command(commands)
def migrate(
    address: str,
    sql: Annotated[bool, flag("Print the statements instead of executing them.", "--sql")] = False,
    json: Json = False,
) -> Result | None:
    """Create or upgrade the tables.

    Data is kept. Any number of processes may run it at once.
    """
    import eventkit_migrations

    with _driver_errors(address):
        if sql:
            script = eventkit_migrations.script(address)
            if not script and not json:
                note(f"the tables are already at revision {eventkit_migrations.HEAD}: nothing to execute")
                return None
            return answer(script, {"sql": script})
        before = eventkit_migrations.current(address)
        eventkit_migrations.upgrade(address)
        now = eventkit_migrations.current(address)
    text = f"the tables are {'already' if before == now else 'now'} at revision {now}"
    return answer(text, {"before": before, "revision": now})


@command(commands)
def current(address: str) -> Result:
    """Print the revision of the tables, or none."""
    import eventkit_migrations

    with _driver_errors(address):
        found = eventkit_migrations.current(address)
    return answer(found or "none", {"revision": found, "newest": eventkit_migrations.HEAD})


@contextmanager
def _driver_errors(address: str) -> Iterator[None]:
    """Report a database error in the driver's words, without the statement and link that SQLAlchemy adds."""
    from eventkit_migrations import database
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise Failed(f"{database.shown(address)}: {getattr(error, 'orig', error)}") from error


Id = Annotated[str, argument("ID", "The 16 characters that list shows.")]


@command(keys)
def add(
    kit: EventKit,
    name: Annotated[str, argument("NAME", "A name for its holder.")],
    scope: Annotated[
        list[str], option("RIGHT[:KIND[:NAMES]]", "For example produce:queue:emails.*; repeatable.", "--scope", "-s")
    ],
    rate: Annotated[float | None, option("N", "Requests per second.")] = None,
    burst: Annotated[float | None, option("N", "Burst above the rate.")] = None,
    quota: Annotated[int | None, option("N", "Requests per day.")] = None,
    expires: Annotated[float | None, period("How long the key is valid.")] = None,
) -> Result:
    """Add a key and print it. It cannot be shown again.

    Rights are produce, consume and admin, which includes both. Kinds are queue, stream, channel, webhook,
    schedule, result, lock and limit. A scope without kind or names covers all.
    """
    return _secret(_keys(kit).add(name, scope, rate=rate, burst=burst, quota=quota, expires=expires))


@command(keys, "list")
def list_keys(kit: EventKit) -> Result:
    """List all keys, without their secrets."""
    columns = ("id", "name", "scopes", "rate", "quota", "created_at", "expires_at", "revoked_at")
    return listing(_keys(kit).list(), columns, "no keys: the service accepts only local connections")


@command(keys)
def rotate(
    kit: EventKit, id: Id, grace: Annotated[float, period("How long the old secret stays valid (0s).")] = 0.0
) -> Result:
    """Give a key a new secret, and print it."""
    return _secret(_found(_keys(kit).rotate(id, grace=grace), id))


@command(keys)
def revoke(kit: EventKit, id: Id) -> None:
    """Revoke a key. Services notice within a second."""
    _found(_keys(kit).revoke(id), id)


def _keys(kit: EventKit) -> Any:
    from eventkit.access import ApiKeys

    return ApiKeys(kit, by=caller())


def _found(answer: Any, id: str) -> Any:
    if not answer:
        raise Failed(f"there is no active key {id}: see eventkit key list")
    return answer


def _secret(key: Any) -> Result:
    return answer(str(key), {"id": key.id, "key": str(key)})


@command(commands)
def bench(
    address: str, seconds: Annotated[float, option(None, "Duration of each measurement.", min=0.1, max=60)] = 1.0
) -> Result:
    """Benchmark this database from here.

    It uses a queue, a stream and a channel of its own, and removes them afterwards.
    """
    rows = []
    for name, value, unit in _measured(address, seconds):
        rows.append({"measure": name, "value": value, "unit": unit})
        note(f"{name}: {value:,} {unit}")
    return listing(rows, ("measure", "value", "unit"), "nothing")


@command(commands)
def demo(
    part: Annotated[
        list[str] | None, argument("PART", "With two terminals: listen in one, order ITEM in the other.")
    ] = None,
) -> None:
    """Run a demonstration in a new SQLite file in this folder."""
    from eventkit.demo import main

    if code := main(part or []):
        raise typer.Exit(code)


def _measured(address: str, seconds: float) -> Iterator[tuple[str, float, str]]:
    """Yield name, value and unit of each measurement when it is taken; remove its data at the end in any case."""
    name = f"eventkit:bench:{uuid4().hex[:8]}"
    with opened(address) as kit:
        queue, stream, channel = kit.queue(name), kit.stream(name), kit.channel(name)
        try:
            for what, unit, each, act in _steps(queue, stream):
                began, acts = time.perf_counter(), 0
                while (took := time.perf_counter() - began) < seconds or not acts:
                    act()
                    acts += 1
                yield what, round(acts * each / took), unit
            yield "commit to listener, median", round(median(wakes(channel, _WAKES)) * 1000, 2), "ms"
        finally:
            queue.drop(force=True)
            stream.prune(keep_count=0, keep_unconsumed=False)
            channel.prune(keep_count=0)


def _steps(queue: Any, stream: Any) -> Iterator[tuple[str, str, int, Callable[[], object]]]:
    """Yield the name of each measurement, its unit, the number of units in a call, and the call."""
    job, event, place = {"to": "ann@example.com", "order": 42}, {"id": 42}, 0
    jobs, events = [job] * _BATCH, [event] * _BATCH

    def work(limit: int) -> object:
        return queue.ack_many(queue.claim("bench", limit)) or queue.enqueue_many(jobs)

    def read() -> None:
        nonlocal place
        found = stream.read(place, _BATCH)
        place = found[-1].offset if len(found) == _BATCH else 0

    yield "enqueue, one by one", "tasks/s", 1, lambda: queue.enqueue(job)
    yield f"enqueue_many, {_BATCH}", "tasks/s", _BATCH, lambda: queue.enqueue_many(jobs)
    yield "claim and ack, one by one", "tasks/s", 1, lambda: work(1)
    yield "claim and ack, 100", "tasks/s", 100, lambda: work(100)
    yield "publish, one by one", "events/s", 1, lambda: stream.publish(event)
    yield f"publish_many, {_BATCH}", "events/s", _BATCH, lambda: stream.publish_many(events)
    yield f"read, {_BATCH}", "events/s", _BATCH, read
