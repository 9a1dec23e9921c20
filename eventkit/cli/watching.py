"""``eventkit stats``, ``overview``, ``health`` and ``check``: how it goes."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from . import queues, settings, show
from .opening import opened
from .options import Json, Url
from .refusals import Failed

Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="How often to look.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until interrupted.")]


def stats(
    names: Annotated[list[str] | None, typer.Argument(metavar="QUEUE", help="Those alone.", show_default=False)] = None,
    watch: Watch = False,
    every: Every = 1.0,
    url: Url = None,
    json: Json = False,
) -> None:
    """The queues in numbers."""
    with opened(url) as kit, suppress(KeyboardInterrupt):
        queues.known(kit, names or [])

        def look() -> list[dict[str, Any]]:
            found = kit.overview().queues
            return queues.rows({name: found[name] for name in names if name in found} if names else found, json)

        def picture() -> list[show.Part]:
            return [("", queues.COLUMNS, rows)] if (rows := _under(queues.COLUMNS, look())) else []

        if not watch:
            show.listing(look(), queues.COLUMNS, json, "there are no queues")
        elif json:
            _lines(look, every)
        else:
            show.watched(every, picture, "there are no queues")


def overview(watch: Watch = False, every: Every = 1.0, url: Url = None, json: Json = False) -> None:
    """All that there is, in numbers."""
    with opened(url) as kit, suppress(KeyboardInterrupt):
        if watch and json:
            _lines(kit.overview, every)
        elif watch:
            show.watched(every, lambda: _parts(kit.overview()), "there is nothing yet")
        elif json:
            show.document(kit.overview())
        else:
            show.parts(_parts(kit.overview()))


def health(url: Url = None, json: Json = False) -> None:
    """Whether the database answers.

    Exit code 0, else 1: for whoever looks after the process.
    """
    began = time.monotonic()
    with opened(url) as kit:
        connected = time.monotonic()
        kit.schedules.soonest()
        answered = time.monotonic()
    report = {"healthy": True, "connect_ms": _ms(connected - began), "answer_ms": _ms(answered - connected)}
    show.answer(f"healthy: it answers in {report['answer_ms']} ms", report, json)


def check(
    app: Annotated[
        str | None, typer.Argument(metavar="MODULE:APP", help="An application to look at too.", show_default=False)
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Connect, and wait for a wake as well.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Whether the settings are right, and the app.

    With --live, also whether the database has the tables, and tells of commits.
    """
    from eventkit.kit import backend_of

    declared: dict[str, Any] = {}
    if app is not None:
        from .application import load

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
        text += f"; its tables are there, and a commit is noticed in {found['wake_ms']} ms"
    show.answer(text, found, json)


def shown(url: str) -> str:
    """*url* without a password."""
    from eventkit_migrations import database

    from eventkit.errors import UnknownBackend

    try:
        return database.shown(url)
    except UnknownBackend:  # A backend of somebody else's, whose URLs are its own.
        return f"{url.partition('://')[0]}://…"


def _wake(url: str) -> float:
    """Milliseconds from a commit to who sleeps."""
    with opened(url) as kit:
        channel = kit.channel("eventkit:check")
        with channel.listen() as heard:
            sent_at: list[float] = []

            def send() -> None:
                time.sleep(0.1)
                sent_at.append(time.monotonic())
                channel.notify(None)

            import threading

            sender = threading.Thread(target=send)
            sender.start()
            next(heard)
            took = time.monotonic() - sent_at[0]
            sender.join()
        channel.prune(max_keep=0)
    if took > 2:
        raise Failed(
            f"a commit was noticed after {took:.1f} s only: notifications do not arrive, and waiters fall back to "
            "looking; behind a pooler, give ?pooler=transaction and ?listen_url= in the URL"
        )
    return _ms(took)


def _lines(look: Any, every: float) -> None:
    while True:
        show.line({"at": time.time(), "found": look()})
        time.sleep(every)


def _parts(found: Any) -> list[show.Part]:
    """What an overview has, as tables with titles; those without rows are left out."""
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
            [{"schedule": name, **show.plain(one)} for name, one in found.schedules.items()],
        ),
        (
            "Locks",
            ("lock", "holder", "fence", "until"),
            [{"lock": name, **show.plain(one)} for name, one in found.locks.items()],
        ),
        ("Results", ("results",), [{"results": found.results}] if found.results else []),
    ]
    return [(title, columns, _under(columns, rows)) for title, columns, rows in parts if rows]


def _under(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """The rows with those columns."""
    return [[row.get(column) for column in columns] for row in rows]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
