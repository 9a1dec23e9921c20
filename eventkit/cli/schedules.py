"""``eventkit schedule``: schedules that enqueue tasks."""

from typing import Annotated, Any

import typer

from . import console
from .console import Failed
from .database import audited, opened
from .settings import Headers, Json, Url, duration, headers, json_value

schedule_app = typer.Typer(help="Schedules: enqueue tasks at set times.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.", show_default=False)]

_COLUMNS = ("name", "when", "tz", "queue", "next_at", "last_at", "fired", "skipped", "paused")


@schedule_app.command("list")
def list_(url: Url = None, json: Json = False) -> None:
    """List all schedules with their next times."""
    with opened(url) as kit:
        console.listing(kit.schedules.list(), _COLUMNS, json, "there are no schedules")


@schedule_app.command()
def add(
    name: Name,
    when: Annotated[
        str,
        typer.Argument(metavar="WHEN", help="For example '0 3 * * *', @hourly or '@every 30s'.", show_default=False),
    ],
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue of its tasks.", show_default=False)],
    payload: Annotated[str, typer.Argument(metavar="PAYLOAD", help="Payload, as JSON.", show_default=False)] = "null",
    tz: Annotated[str, typer.Option("--tz", metavar="ZONE", help="Time zone, for example Europe/Berlin.")] = "UTC",
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Priority of its tasks.")] = 0,
    expires: Annotated[
        float | None,
        typer.Option("--expires", parser=duration, metavar="TIME", help="How long after a fire its task expires."),
    ] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Attempts per task.")] = None,
    catch_up: Annotated[
        str, typer.Option("--catch-up", metavar="WHICH", help="Missed fires to make up for: all, latest or none.")
    ] = "all",
    paused: Annotated[bool, typer.Option("--paused", help="Add it paused.")] = False,
    header: Headers = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Add a schedule, or replace the one of the same name."""
    with audited(url, "schedule.add", schedule=name, when=when, queue=queue) as kit:
        kit.schedules.add(
            name,
            when,
            queue,
            json_value(payload),
            tz=tz,
            priority=priority,
            expires=expires,
            max_attempts=max_attempts,
            catch_up=catch_up,
            paused=paused,
            headers=headers(header),
        )
        schedule = kit.schedules.get(name)
        console.answer(_next(schedule), schedule, json)


@schedule_app.command()
def rm(name: Name, url: Url = None, json: Json = False) -> None:
    """Remove a schedule."""
    with audited(url, "schedule.rm", schedule=name) as kit:
        _known(kit.schedules.remove(name), name)
        console.answer(f"schedule {name} removed", {"name": name, "removed": True}, json)


@schedule_app.command()
def pause(name: Name, url: Url = None, json: Json = False) -> None:
    """Pause a schedule."""
    with audited(url, "schedule.pause", schedule=name) as kit:
        _known(kit.schedules.pause(name), name)
        console.answer(f"schedule {name} is paused", kit.schedules.get(name), json)


@schedule_app.command()
def resume(name: Name, url: Url = None, json: Json = False) -> None:
    """Resume a paused schedule from now on."""
    with audited(url, "schedule.resume", schedule=name) as kit:
        _known(kit.schedules.resume(name), name)
        schedule = kit.schedules.get(name)
        console.answer(_next(schedule), schedule, json)


@schedule_app.command("next")
def next_(
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", metavar="N", min=1, help="Number of fires.")] = 10,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show the next times of a schedule."""
    with opened(url) as kit:
        _known(kit.schedules.get(name) is not None, name)
        moments = [{"name": name, "next_at": moment} for moment in kit.schedules.upcoming(name, count)]
        console.listing(moments, ("name", "next_at"), json, f"schedule {name} is paused")


def _known(answer: bool, name: str) -> None:
    if not answer:
        raise Failed(f"there is no schedule {name!r}: see eventkit schedule list")


def _next(schedule: Any) -> str:
    """Return a sentence with the next time of a schedule."""
    if schedule is None or schedule.next_at is None:
        return f"schedule {schedule.name if schedule else ''} is paused"
    return f"schedule {schedule.name} fires next at {console.cell(schedule.next_at)}"
