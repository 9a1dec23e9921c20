"""``eventkit schedule``: what makes tasks at certain times."""

from typing import Annotated, Any

import typer

from . import show
from .opening import opened
from .options import Headers, Json, Url
from .refusals import Failed
from .telling import told
from .values import duration, headers, json_value

app = typer.Typer(help="Schedules: tasks at certain times.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.", show_default=False)]

_COLUMNS = ("name", "when", "tz", "queue", "next_at", "last_at", "fired", "skipped", "paused")


@app.command("list")
def list_(url: Url = None, json: Json = False) -> None:
    """All schedules, and when they fire next."""
    with opened(url) as kit:
        show.listing(kit.schedules.list(), _COLUMNS, json, "there are no schedules")


@app.command()
def add(
    name: Name,
    when: Annotated[
        str,
        typer.Argument(metavar="WHEN", help="As in '0 3 * * *', @hourly or '@every 30s'.", show_default=False),
    ],
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Where its tasks go.", show_default=False)],
    payload: Annotated[str, typer.Argument(metavar="PAYLOAD", help="Theirs, as JSON.", show_default=False)] = "null",
    tz: Annotated[str, typer.Option("--tz", metavar="ZONE", help="Whose clock, as in Europe/Berlin.")] = "UTC",
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="That of its tasks.")] = 0,
    expires: Annotated[
        float | None,
        typer.Option("--expires", parser=duration, metavar="TIME", help="How long after a fire its task is no use."),
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", help="Runs of a task in all.")
    ] = None,
    catch_up: Annotated[
        str, typer.Option("--catch-up", metavar="WHICH", help="What was missed: all, latest or none.")
    ] = "all",
    paused: Annotated[bool, typer.Option("--paused", help="It does not fire until it is resumed.")] = False,
    header: Headers = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Keep a schedule, in the place of one of the same name."""
    with told(url, "schedule.add", schedule=name, when=when, queue=queue) as kit:
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
        show.answer(_next(schedule), schedule, json)


@app.command()
def rm(name: Name, url: Url = None, json: Json = False) -> None:
    """Forget a schedule."""
    with told(url, "schedule.rm", schedule=name) as kit:
        _known(kit.schedules.remove(name), name)
        show.answer(f"schedule {name} is gone", {"name": name, "removed": True}, json)


@app.command()
def pause(name: Name, url: Url = None, json: Json = False) -> None:
    """Let a schedule fire no more."""
    with told(url, "schedule.pause", schedule=name) as kit:
        _known(kit.schedules.pause(name), name)
        show.answer(f"schedule {name} is paused", kit.schedules.get(name), json)


@app.command()
def resume(name: Name, url: Url = None, json: Json = False) -> None:
    """Let a schedule fire again, from now on."""
    with told(url, "schedule.resume", schedule=name) as kit:
        _known(kit.schedules.resume(name), name)
        schedule = kit.schedules.get(name)
        show.answer(_next(schedule), schedule, json)


@app.command("next")
def next_(
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", metavar="N", min=1, help="How many.")] = 10,
    url: Url = None,
    json: Json = False,
) -> None:
    """When a schedule fires next."""
    with opened(url) as kit:
        _known(kit.schedules.get(name) is not None, name)
        moments = [{"name": name, "next_at": moment} for moment in kit.schedules.upcoming(name, count)]
        show.listing(moments, ("name", "next_at"), json, f"schedule {name} is paused")


def _known(answer: bool, name: str) -> None:
    if not answer:
        raise Failed(f"there is no schedule {name!r}: see eventkit schedule list")


def _next(schedule: Any) -> str:
    """When it fires, in a sentence."""
    if schedule is None or schedule.next_at is None:
        return f"schedule {schedule.name if schedule else ''} is paused"
    return f"schedule {schedule.name} fires next at {show.cell(schedule.next_at)}"
