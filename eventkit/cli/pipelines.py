"""``eventkit pipeline``: what runs from somewhere to somewhere, and how it is doing."""

from typing import Annotated

import typer

from . import show
from .opening import connected
from .options import Json, Url, Yes
from .refusals import Failed

app = typer.Typer(help="Pipelines: how each is doing.", no_args_is_help=True, rich_markup_mode=None)

_COLUMNS = ("name", "state", "source", "sink", "rows", "lag", "updated_at", "error")


@app.command("list")
def list_(url: Url = None, json: Json = False) -> None:
    """All pipelines, archives and replays among them.

    One that says it is running, and has not been heard of for long, was killed.
    """
    from eventkit.operations.pipeline import ListPipelines

    with connected(url) as connection:
        show.listing(connection.execute(ListPipelines()), _COLUMNS, json, "there are no pipelines")


@app.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which.", show_default=False)],
    url: Url = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Forget a pipeline.

    What it has written stays, and so does its checkpoint: it is on the list again when it runs.
    """
    from eventkit.operations.pipeline import RemovePipeline

    with connected(url) as connection:
        show.confirm(f"Forget pipeline {name!r}?", yes)
        if not connection.execute(RemovePipeline(name)):
            raise Failed(f"there is no pipeline {name!r}")
        show.answer(f"pipeline {name} is forgotten", {"name": name, "removed": True}, json)
