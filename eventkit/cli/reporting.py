"""What topics and queues do by the hour: summing it up, and showing it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import opening, settings, show
from .options import Json, Url
from .refusals import Failed, Refused
from .sparking import session
from .values import duration

if TYPE_CHECKING:
    from eventkit.operations.rollup import Sum
    from eventkit.rollups import Span

Last = Annotated[
    float, typer.Option("--last", parser=duration, metavar="TIME", help="How much of it to show, as in 6h or 30d.")
]


def rollup(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="What to sum up; all topics if left out.")
    ] = None,
    last: Last = "24h",  # type: ignore[assignment]  # Typer parses it.
    json: Json = False,
    url: Url = None,
) -> None:
    """Sum up by the hour what has come since the last run, and show the last hours."""
    from eventkit.rollups import spans
    from eventkit.spark.complaints import is_sparks, told
    from eventkit.spark.rollup import rollup

    address = settings.url(url)
    with opening.opened(address):
        pass  # What cannot be opened is told before Spark is started.
    spark = session()
    try:
        for done in rollup(spark, address, topics):
            if done.lost:
                show.note(f"{done.topic}: events up to {done.lost} were pruned before they were summed up")
            if done.events:
                show.note(f"{done.topic}: {done.events} more, up to {done.offset}")
    except Exception as error:
        if not is_sparks(error):
            raise
        raise Failed(told(error)) from error
    found = spans(_sums(address, last)[2])
    if json:
        show.document([_told(span) for span in found])
    elif found:
        show.parts([part for part in (_topics(found), _queues(found)) if part[2]])
    else:
        show.note("nothing is summed up of that time")


def report(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page; it is there when it is whole.")
    ] = Path("eventkit-report.html"),
    last: Last = "7d",  # type: ignore[assignment]
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="What stands above it.")] = "eventkit",
    url: Url = None,
) -> None:
    """Write a page with plots of what rollup has summed up."""
    from eventkit.report import page

    since, before, sums = _sums(settings.url(url), last)
    new = output.with_name(f".{output.name}.new")
    try:
        new.write_text(page(sums, since=since, before=before, title=title), "utf-8")
        new.replace(output)
    except OSError as error:
        raise Refused(f"{output} cannot be written: {error.strerror}") from None
    show.note(f"{output} has {len({(one.subject, one.name) for one in sums})} topics and queues")


def _sums(url: str, last: float) -> "tuple[datetime, datetime, list[Sum]]":
    """A span of whole hours up to the present one, and what is summed up of it."""
    from eventkit.rollups import read

    before = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    since = before - timedelta(hours=max(1, -(-last // 3600)))
    with opening.opened(url) as kit:
        return since, before, read(kit, since=since, before=before)


def _topics(found: "list[Span]") -> show.Part:
    rows = [
        [f"{one.begin:%Y-%m-%d %H:%M}", one.name, one.count("events"), one.rate, one.count("bytes")]
        for one in found
        if one.subject == "topic"
    ]
    return "Topics", ["hour (UTC)", "topic", "events", "a second", "bytes"], rows


def _queues(found: "list[Span]") -> show.Part:
    columns = ["hour (UTC)", "queue", "enqueued", "ended", "a second", "failed", "dead"]
    columns += ["wait p50", "wait p95", "run p50", "run p95"]
    rows = [
        [
            f"{one.begin:%Y-%m-%d %H:%M}",
            one.name,
            one.count("enqueued"),
            one.attempts,
            one.rate,
            None if one.failure_rate is None else f"{one.failure_rate:.1%}",
            one.count("dead", "expired"),
            *(_latency(one.percentile(latency, part)) for latency in ("wait", "run") for part in (0.5, 0.95)),
        ]
        for one in found
        if one.subject == "queue"
    ]
    return "Queues", columns, rows


def _latency(milliseconds: float | None) -> str | None:
    from eventkit.report.page import duration

    return None if milliseconds is None else duration(milliseconds)


def _told(span: "Span") -> dict[str, Any]:
    """What is told of a topic or a queue in an hour: counts, and seconds."""
    told: dict[str, Any] = {span.subject: span.name, "hour": span.begin, "rate": span.rate}
    told |= {measure: amount for measure, amount in sorted(span.amounts.items()) if ":" not in measure}
    if span.subject == "queue":
        told["failure_rate"] = span.failure_rate
        for latency in ("wait", "run"):
            for part in (50, 95, 99):
                found = span.percentile(latency, part / 100)
                told[f"{latency}_p{part}"] = None if found is None else found / 1000
    return told
