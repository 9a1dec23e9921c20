"""``eventkit lock``: who holds what."""

import typer

from . import show
from .opening import opened
from .options import Json, Url

app = typer.Typer(help="Locks: who holds what.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Locks: who holds what."""


@app.command("list")
def list_(url: Url = None, json: Json = False) -> None:
    """The locks that are held."""
    with opened(url) as kit:
        rows = [{"lock": name, **show.plain(held)} for name, held in kit.overview().locks.items()]
        show.listing(rows, ("lock", "holder", "fence", "until"), json, "no lock is held")
