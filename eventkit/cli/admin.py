"""``eventkit migrate``, ``current``, ``doctor``, ``bench``, ``demo`` and ``key``."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from . import console, settings
from .console import Failed
from .database import backend_function, caller, opened
from .settings import Json, Url, duration

if TYPE_CHECKING:
    from eventkit import EventKit
    from eventkit.values import Finding


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements instead of executing them.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Create or upgrade the tables.

    Data is kept. Any number of processes may run it at once.
    """
    import eventkit_migrations

    address = settings.url(url)
    with _driver_errors(address):
        if sql:
            script = eventkit_migrations.script(address)
            if not script and not json:
                console.note(f"the tables are already at revision {eventkit_migrations.HEAD}: nothing to execute")
                return
            console.answer(script, {"sql": script}, json)
            return
        before = eventkit_migrations.current(address)
        eventkit_migrations.upgrade(address)
        now = eventkit_migrations.current(address)
    text = f"the tables are already at revision {now}" if before == now else f"the tables are now at revision {now}"
    console.answer(text, {"before": before, "revision": now}, json)


def current(url: Url = None, json: Json = False) -> None:
    """Print the revision of the tables, or none."""
    import eventkit_migrations

    address = settings.url(url)
    with _driver_errors(address):
        found = eventkit_migrations.current(address)
    console.answer(found or "none", {"revision": found, "newest": eventkit_migrations.HEAD}, json)


@contextmanager
def _driver_errors(url: str) -> Iterator[None]:
    """Report a database error in the driver's words, without the statement and link that SQLAlchemy adds."""
    from eventkit_migrations import database
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise Failed(f"{database.shown(url)}: {getattr(error, 'orig', error)}") from error


key_app = typer.Typer(help="API keys of the HTTP service.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[str, typer.Argument(metavar="ID", help="The 16 characters that list shows.", show_default=False)]


@key_app.callback()
def _group() -> None:
    """API keys of the HTTP service."""


@key_app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for its holder.", show_default=False)],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            "-s",
            metavar="RIGHT[:KIND[:NAMES]]",
            help="For example produce:queue:emails.*; repeatable.",
            show_default=False,
        ),
    ],
    rate: Annotated[float | None, typer.Option("--rate", metavar="N", help="Requests per second.")] = None,
    burst: Annotated[float | None, typer.Option("--burst", metavar="N", help="Burst above the rate.")] = None,
    quota: Annotated[int | None, typer.Option("--quota", metavar="N", help="Requests per day.")] = None,
    expires: Annotated[
        float | None, typer.Option("--expires", metavar="TIME", help="How long the key is valid.", parser=duration)
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Add a key and print it. It cannot be shown again.

    Rights are produce, consume and admin, which includes both. Kinds are queue, stream, channel, job,
    schedule, result, lock and limit. A scope without kind or names covers all.
    """
    with opened(url) as kit:
        key = _keys(kit).add(name, scope, rate=rate, burst=burst, quota=quota, expires=expires)
    _print(key, json)


@key_app.command("list")
def list_keys(url: Url = None, json: Json = False) -> None:
    """List all keys, without their secrets."""
    with opened(url) as kit:
        rows = [console.plain(key) for key in _keys(kit).list()]
    columns = ("id", "name", "scopes", "rate", "quota", "created_at", "expires_at", "revoked_at")
    if not json:
        rows = [row | {"scopes": " ".join(row["scopes"])} for row in rows]
    console.listing(rows, columns, json, "no keys: the service accepts only local connections")


@key_app.command()
def rotate(
    id: Id,
    grace: Annotated[
        float,
        typer.Option("--grace", metavar="TIME", help="How long the old secret stays valid (0s).", parser=duration),
    ] = 0.0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Give a key a new secret, and print it."""
    with opened(url) as kit:
        key = _keys(kit).rotate(id, grace=grace)
    if key is None:
        raise Failed(f"there is no active key {id}: see eventkit key list")
    _print(key, json)


@key_app.command()
def revoke(id: Id, url: Url = None) -> None:
    """Revoke a key. Services notice within a second."""
    with opened(url) as kit:
        if not _keys(kit).revoke(id):
            raise Failed(f"there is no active key {id}: see eventkit key list")


def _keys(kit: Any) -> Any:
    from eventkit.access import ApiKeys

    return ApiKeys(kit, by=caller())


def _print(key: Any, json: bool) -> None:
    if json:
        console.document({"id": key.id, "key": str(key)})
    else:
        print(key)


def doctor(url: Url = None, json: Json = False) -> None:
    """Diagnose common problems.

    Prints a remedy for each problem. Exit code 1 if there is one that must be fixed.
    """

    diagnostics = examine(settings.url(url))
    bad = sum(diagnostic.level == "bad" for diagnostic in diagnostics)
    if json:
        console.document({"ok": not bad, "findings": diagnostics})
    else:
        for diagnostic in diagnostics:
            mark = {"good": "ok  ", "doubtful": "warn", "bad": "BAD "}[diagnostic.level]
            print(f"{mark}  {console.harmless(diagnostic.what)}")
            if diagnostic.remedy:
                print(f"      → {console.harmless(diagnostic.remedy)}")
    if bad:
        raise Failed(f"{bad} {'problem' if bad == 1 else 'problems'} found")


def bench(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=60, help="Duration of each measurement.")] = 1.0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Benchmark this database from here.

    It uses a queue, a stream and a channel of its own, and removes them afterwards.
    """

    rows: list[dict[str, Any]] = []
    for name, value, unit in measure(settings.url(url), seconds):
        rows.append({"measure": name, "value": value, "unit": unit})
        console.note(f"{name}: {value:,} {unit}")
    console.listing(rows, ("measure", "value", "unit"), json, "nothing")


def demo(
    part: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PART", help="With two terminals: listen in one, order ITEM in the other.", show_default=False
        ),
    ] = None,
) -> None:
    """Run a demonstration in a new SQLite file in this folder."""
    from eventkit.demo import main

    if code := main(part or []):
        raise typer.Exit(code)


_WAITING = 300
"""Seconds that a ready task may wait while no worker holds a task of its queue."""

_STUCK = 600
"""Seconds that a consumer with lag may stand still."""

_LATE = 60
"""Seconds after which a due fire is late."""


def examine(url: str) -> "list[Finding]":
    """Return all diagnostics, in reading order."""
    from eventkit.errors import EventkitError
    from eventkit.values import Finding

    found = [*_distributions(), *backend_function(url, "diagnose")(url)]
    try:
        with opened(url) as kit:
            found += [*_queues(kit), *_consumers(kit), *_schedules(kit)]
    except EventkitError as error:
        found.append(Finding("bad", f"eventkit.connect() failed: {error}"))
    return found


def _distributions() -> "Iterator[Finding]":
    """Report other distributions that install a package named eventkit."""
    from importlib.metadata import packages_distributions

    from eventkit.values import Finding

    for name in sorted({*packages_distributions().get("eventkit", ())} - {"eventkit-db"}):
        yield Finding(
            "bad",
            f"the distribution {name} also installs a package named eventkit: one has overwritten files of the other",
            f"pip uninstall {name} eventkit-db, then pip install eventkit-db",
        )


def _queues(kit: "EventKit") -> "Iterator[Finding]":
    from eventkit.values import Finding

    for name, stats in kit.overview().queues.items():
        waiting = stats.oldest_ready_age or 0
        if stats.paused and stats.ready:
            yield Finding(
                "doubtful",
                f"queue {name} is paused with {stats.ready:,} ready tasks",
                f"eventkit queue resume {name}",
            )
        elif waiting > _WAITING and not stats.leased:
            yield Finding(
                "bad",
                f"a task in queue {name} has been ready for {waiting:,.0f} s, and no worker holds a task of this queue",
                f"start a worker for it, or check its settings with eventkit queue show {name}",
            )
        if stats.dead:
            yield Finding(
                "doubtful",
                f"queue {name} has {stats.dead:,} dead letters",
                f"eventkit dlq list {name} --by-error shows the errors; then eventkit dlq requeue or purge {name}",
            )


def _consumers(kit: "EventKit") -> "Iterator[Finding]":
    from eventkit.values import Finding

    for topic, stats in kit.overview().topics.items():
        for consumer in stats.consumers:
            still = (datetime.now(UTC) - consumer.updated_at).total_seconds()
            if consumer.lag and still > _STUCK:
                yield Finding(
                    "bad",
                    f"consumer {consumer.name} of topic {topic} has stood still for {still:,.0f} s "
                    f" with a lag of {consumer.lag:,} events",
                    f"check that it runs and what it logs at offset {consumer.offset}; "
                    f"eventkit stream seek {topic} {consumer.name} skips an event that it cannot process",
                )


def _schedules(kit: "EventKit") -> "Iterator[Finding]":
    from eventkit.values import Finding

    for schedule in kit.schedules.list():
        if schedule.next_at is not None:
            late = (datetime.now(UTC) - schedule.next_at).total_seconds()
            if late > _LATE:
                yield Finding(
                    "bad",
                    f"schedule {schedule.name} is {late:,.0f} s overdue",
                    "start eventkit scheduler, or call kit.run_scheduler() in a process",
                )


_BATCH = 1000
_WAKES = 20

Measure = tuple[str, float, str]
"""Name, value and unit."""


def measure(url: str, seconds: float) -> Iterator[Measure]:
    """Yield each measurement as soon as it is taken; remove its data at the end in any case."""
    name = f"eventkit:bench:{uuid4().hex[:8]}"
    with opened(url) as kit:
        try:
            yield from _queue(kit.queue(name), seconds)
            yield from _stream(kit.stream(name), seconds)
            yield "commit to listener, median", _wake(kit, name), "ms"
        finally:
            kit.queue(name).drop(force=True)
            kit.stream(name).prune(max_keep=0, keep_unconsumed=False)
            kit.channel(name).prune(max_keep=0)


def _queue(queue: Any, seconds: float) -> Iterator[Measure]:
    payload = {"to": "ann@example.com", "order": 42}
    yield "enqueue, one by one", _rate(seconds, 1, lambda: queue.enqueue(payload)), "tasks/s"
    yield f"enqueue_many, {_BATCH}", _rate(seconds, _BATCH, lambda: queue.enqueue_many([payload] * _BATCH)), "tasks/s"

    def work(limit: int) -> Callable[[], object]:
        return lambda: queue.ack_many(queue.claim("bench", limit)) or queue.enqueue_many([payload] * _BATCH)

    yield "claim and ack, one by one", _rate(seconds, 1, work(1)), "tasks/s"
    yield "claim and ack, 100", _rate(seconds, 100, work(100)), "tasks/s"


def _stream(stream: Any, seconds: float) -> Iterator[Measure]:
    payload = {"id": 42}
    yield "publish, one by one", _rate(seconds, 1, lambda: stream.publish(payload)), "events/s"
    yield f"publish_many, {_BATCH}", _rate(seconds, _BATCH, lambda: stream.publish_many([payload] * _BATCH)), "events/s"
    place = 0

    def read() -> int:
        nonlocal place
        events = stream.read(place, _BATCH)
        place = events[-1].offset if len(events) == _BATCH else 0
        return len(events)

    yield f"read, {_BATCH}", _rate(seconds, _BATCH, read), "events/s"


def _rate(seconds: float, each: int, act: Callable[[], object]) -> float:
    """Return items per second, with *each* of them per call."""
    began = time.perf_counter()
    acts = 0
    while (took := time.perf_counter() - began) < seconds or not acts:
        act()
        acts += 1
    return round(acts * each / took)


def _wake(kit: "EventKit", name: str) -> float:
    """Return the median milliseconds from before a commit until a listener in this process receives it."""
    took: list[float] = []
    sent = 0.0
    handled = threading.Event()
    with kit.channel(name).listen() as notifications:

        def listen() -> None:
            for _ in range(_WAKES):
                next(notifications)
                took.append(time.perf_counter() - sent)
                handled.set()

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        for _ in range(_WAKES):
            time.sleep(0.02)
            handled.clear()
            sent = time.perf_counter()
            kit.channel(name).notify(None)
            handled.wait(10)
        listener.join(10)
    return round(statistics.median(took) * 1000, 2)
