"""What `doctor` looks at: what the backend knows of its database, and how work gets on in it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .opening import care, opened

if TYPE_CHECKING:
    from eventkit import EventKit
    from eventkit.findings import Finding

_WAITING = 300
"""Seconds for which a task may be ready, while nobody works, before that is odd."""

_STUCK = 600
"""Seconds for which a consumer may stand still with events ahead of it."""

_LATE = 60
"""Seconds after which a fire that nobody has made is late."""


def examine(url: str) -> "list[Finding]":
    """All findings, in the order in which they should be read."""
    from eventkit.errors import EventkitError
    from eventkit.findings import Finding

    found = [*_distributions(), *care(url, "diagnose")(url)]
    try:
        with opened(url) as kit:
            found += [*_queues(kit), *_consumers(kit), *_schedules(kit)]
    except EventkitError as error:
        found.append(Finding("bad", f"eventkit.connect() refuses the database: {error}"))
    return found


def _distributions() -> "Iterator[Finding]":
    """Report each other distribution whose files are those of the import name."""
    from importlib.metadata import packages_distributions

    from eventkit.findings import Finding

    for name in sorted({*packages_distributions().get("eventkit", ())} - {"eventkit-db"}):
        yield Finding(
            "bad",
            f"the distribution {name} installs a package named eventkit too, so one has overwritten files of the other",
            f"pip uninstall {name} eventkit-db, then pip install eventkit-db",
        )


def _queues(kit: "EventKit") -> "Iterator[Finding]":
    from eventkit.findings import Finding

    for name, stats in kit.overview().queues.items():
        waiting = stats.oldest_ready_age or 0
        if stats.paused and stats.ready:
            yield Finding(
                "doubtful",
                f"queue {name} is paused, and {stats.ready:,} tasks wait in it",
                f"eventkit queue resume {name}, when they may go on",
            )
        elif waiting > _WAITING and not stats.leased:
            yield Finding(
                "bad",
                f"a task has been ready in queue {name} for {waiting:,.0f} s, and nobody has one of it in hand",
                f"start a worker for it, or see its settings with eventkit queue show {name}",
            )
        if stats.dead:
            yield Finding(
                "doubtful",
                f"queue {name} has {stats.dead:,} dead letters",
                f"eventkit dlq list {name} --by-error shows why; then eventkit dlq requeue or purge {name}",
            )


def _consumers(kit: "EventKit") -> "Iterator[Finding]":
    from eventkit.findings import Finding

    for topic, stats in kit.overview().topics.items():
        for consumer in stats.consumers:
            still = (datetime.now(UTC) - consumer.updated_at).total_seconds()
            if consumer.lag and still > _STUCK:
                yield Finding(
                    "bad",
                    f"consumer {consumer.name} of topic {topic} has not moved for {still:,.0f} s, "
                    f"with {consumer.lag:,} events ahead of it",
                    f"look whether it runs and what it says at offset {consumer.offset}; "
                    f"eventkit stream seek {topic} {consumer.name} moves it past an event that it cannot take",
                )


def _schedules(kit: "EventKit") -> "Iterator[Finding]":
    from eventkit.findings import Finding

    for schedule in kit.schedules.list():
        if schedule.next_at is not None:
            late = (datetime.now(UTC) - schedule.next_at).total_seconds()
            if late > _LATE:
                yield Finding(
                    "bad",
                    f"schedule {schedule.name} should have fired {late:,.0f} s ago",
                    "start eventkit scheduler, or call kit.run_scheduler() in one of your processes",
                )
