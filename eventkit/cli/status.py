"""``eventkit stats``, ``overview``, ``health`` and ``check``."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from . import console, queues, settings
from .console import Failed
from .database import opened
from .settings import Json, Url

Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Refresh interval.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh until interrupted.")]


def stats(
    names: Annotated[list[str] | None, typer.Argument(metavar="QUEUE", help="Only these.", show_default=False)] = None,
    watch: Watch = False,
    every: Every = 1.0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show statistics of the queues."""
    with opened(url) as kit, suppress(KeyboardInterrupt):
        queues.known(kit, names or [])

        def read() -> list[dict[str, Any]]:
            found = kit.overview().queues
            return queues.rows({name: found[name] for name in names if name in found} if names else found, json)

        def picture() -> list[console.Part]:
            return [("", queues.COLUMNS, rows)] if (rows := _under(queues.COLUMNS, read())) else []

        if not watch:
            console.listing(read(), queues.COLUMNS, json, "there are no queues")
        elif json:
            _lines(read, every)
        else:
            console.watched(every, picture, "there are no queues")


def overview(watch: Watch = False, every: Every = 1.0, url: Url = None, json: Json = False) -> None:
    """Show statistics of the whole database."""
    with opened(url) as kit, suppress(KeyboardInterrupt):
        if watch and json:
            _lines(kit.overview, every)
        elif watch:
            console.watched(every, lambda: _parts(kit.overview()), "the database is empty")
        elif json:
            console.document(kit.overview())
        else:
            console.parts(_parts(kit.overview()))


def health(url: Url = None, json: Json = False) -> None:
    """Check that the database responds.

    Exit code 0 if it does, else 1, for supervisors and containers.
    """
    began = time.monotonic()
    with opened(url) as kit:
        connected = time.monotonic()
        kit.schedules.soonest()
        answered = time.monotonic()
    report = {"healthy": True, "connect_ms": _ms(connected - began), "answer_ms": _ms(answered - connected)}
    console.answer(f"healthy: responds in {report['answer_ms']} ms", report, json)


def check(
    app: Annotated[
        str | None, typer.Argument(metavar="MODULE:APP", help="Also check this application.", show_default=False)
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Also connect and wait for a notification.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Check the settings, and the app.

    With --live, also the tables of the database, and its notifications.
    """
    from eventkit.kit import backend_of

    declared: dict[str, Any] = {}
    if app is not None:
        from .worker import load

        loaded = load(app)
        declared = {"tasks": sorted(loaded.tasks), "queues": list(loaded.queues)}
        url = url or settings.from_file().get("url") or loaded.url
    address = settings.url(url)
    scheme = address.partition(":")[0]
    backend_of(address)
    found: dict[str, Any] = {"url": shown(address), "backend": scheme, **declared}
    if live:
        found["wake_ms"] = _wake(address)
    text = f"{found['url']} is served by the backend for {scheme}"
    if declared:
        text += f"; {app} has {len(found['tasks'])} tasks in the queues {', '.join(found['queues'])}"
    if live:
        text += f"; it has the tables, and a notification took {found['wake_ms']} ms"
    console.answer(text, found, json)


def shown(url: str) -> str:
    """Return *url* without its password."""
    from eventkit_migrations import database

    from eventkit.errors import UnknownBackend

    try:
        return database.shown(url)
    except UnknownBackend:  # A third-party backend may have other URLs.
        return f"{url.partition('://')[0]}://…"


def _wake(url: str) -> float:
    """Return the milliseconds from a commit to the listener."""
    with opened(url) as kit:
        channel = kit.channel("eventkit:check")
        with channel.listen() as notifications:
            sent_at: list[float] = []

            def send() -> None:
                time.sleep(0.1)
                sent_at.append(time.monotonic())
                channel.notify(None)

            import threading

            sender = threading.Thread(target=send)
            sender.start()
            next(notifications)
            took = time.monotonic() - sent_at[0]
            sender.join()
        channel.prune(max_keep=0)
    if took > 2:
        raise Failed(
            f"a notification took {took:.1f} s: notifications do not arrive, and listeners fall back to polling; "
            "behind a pooler, add ?pooler=transaction and ?listen_url= to the URL"
        )
    return _ms(took)


def _lines(read: Any, every: float) -> None:
    while True:
        console.line({"at": time.time(), "found": read()})
        time.sleep(every)


def _parts(found: Any) -> list[console.Part]:
    """Return the non-empty tables of an overview, with titles."""
    parts: list[tuple[str, Sequence[str], list[dict[str, Any]]]] = [
        ("Queues", queues.COLUMNS, queues.rows(found.queues)),
        (
            "Topics",
            ("topic", "events", "head", "consumer", "offset", "lag"),
            [
                {"topic": name, "events": numbers.events, "head": numbers.head, **consumer}
                for name, numbers in found.topics.items()
                for consumer in (
                    [{"consumer": one.name, "offset": one.offset, "lag": one.lag} for one in numbers.consumers] or [{}]
                )
            ],
        ),
        (
            "Schedules",
            ("schedule", "queue", "next_at", "last_at", "fired", "skipped"),
            [{"schedule": name, **console.plain(one)} for name, one in found.schedules.items()],
        ),
        (
            "Locks",
            ("lock", "holder", "fence", "until"),
            [{"lock": name, **console.plain(one)} for name, one in found.locks.items()],
        ),
        ("Results", ("results",), [{"results": found.results}] if found.results else []),
    ]
    return [(title, columns, _under(columns, rows)) for title, columns, rows in parts if rows]


def _under(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """Select *columns* of the rows."""
    return [[row.get(column) for column in columns] for row in rows]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
