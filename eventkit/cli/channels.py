"""``eventkit channel``: telling whoever listens, and listening."""

from typing import Annotated

import typer

from . import show
from .opening import opened
from .options import Headers, Json, Url
from .streams import followed
from .values import headers, json_value

app = typer.Typer(help="Channels: notify and listen.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def notify(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel.", show_default=False)],
    payload: Annotated[str, typer.Argument(metavar="PAYLOAD", help="JSON.", show_default=False)] = "null",
    header: Headers = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Tell everyone who listens."""
    with opened(url) as kit:
        id = kit.channel(channel).notify(json_value(payload), headers=headers(header))
        show.answer(f"notification {id}", {"channel": channel, "id": id}, json)


@app.command()
def listen(
    channels: Annotated[list[str], typer.Argument(metavar="CHANNEL", help="One or more.", show_default=False)],
    url: Url = None,
    json: Json = False,
) -> None:
    """Print notifications as they come, until interrupted."""
    with opened(url) as kit:
        try:
            with kit.listen(*channels) as notifications:
                for notification in notifications:
                    followed(notification, (str(notification.id), notification.channel), json)
        except KeyboardInterrupt:
            show.interrupted()
