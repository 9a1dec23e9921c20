"""``eventkit channel``, ``lock`` and ``pipeline``."""

from typing import Annotated

import typer

from . import console
from .console import Failed
from .database import connected, opened
from .settings import Headers, Json, Url, Yes, headers, json_value
from .streams import followed

channel_app = typer.Typer(help="Channels: send and receive notifications.", no_args_is_help=True, rich_markup_mode=None)


@channel_app.command()
def notify(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel.", show_default=False)],
    payload: Annotated[str, typer.Argument(metavar="PAYLOAD", help="JSON.", show_default=False)] = "null",
    header: Headers = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Send a notification to all listeners."""
    with opened(url) as kit:
        id = kit.channel(channel).notify(json_value(payload), headers=headers(header))
        console.answer(f"notification {id}", {"channel": channel, "id": id}, json)


@channel_app.command()
def listen(
    channels: Annotated[list[str], typer.Argument(metavar="CHANNEL", help="One or more.", show_default=False)],
    url: Url = None,
    json: Json = False,
) -> None:
    """Print notifications as they arrive, until interrupted."""
    with opened(url) as kit:
        try:
            with kit.listen(*channels) as notifications:
                for notification in notifications:
                    followed(notification, (str(notification.id), notification.channel), json)
        except KeyboardInterrupt:
            console.interrupted()


lock_app = typer.Typer(help="Locks and their holders.", no_args_is_help=True, rich_markup_mode=None)


@lock_app.callback()
def _locks() -> None:
    """Locks and their holders."""


@lock_app.command("list")
def list_locks(url: Url = None, json: Json = False) -> None:
    """List the locks that are held."""
    with opened(url) as kit:
        rows = [{"lock": name, **console.plain(held)} for name, held in kit.overview().locks.items()]
        console.listing(rows, ("lock", "holder", "fence", "until"), json, "no locks are held")


pipeline_app = typer.Typer(help="Pipelines and their state.", no_args_is_help=True, rich_markup_mode=None)

_COLUMNS = ("name", "state", "source", "sink", "rows", "lag", "updated_at", "error")


@pipeline_app.command("list")
def list_pipelines(url: Url = None, json: Json = False) -> None:
    """List all pipelines, archives and replays included.

    A pipeline that is shown as running but was not updated for long has crashed.
    """
    from eventkit.operations.admin import ListPipelines

    with connected(url) as connection:
        console.listing(connection.execute(ListPipelines()), _COLUMNS, json, "there are no pipelines")


@pipeline_app.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the pipeline.", show_default=False)],
    url: Url = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove a pipeline from the list.

    Its output and checkpoint are kept. The pipeline is listed again when it runs.
    """
    from eventkit.operations.admin import RemovePipeline

    with connected(url) as connection:
        console.confirm(f"Remove pipeline {name!r}?", yes)
        if not connection.execute(RemovePipeline(name)):
            raise Failed(f"there is no pipeline {name!r}")
        console.answer(f"pipeline {name} removed", {"name": name, "removed": True}, json)
