"""``eventkit key``: who may call the service."""

from typing import Annotated, Any

import typer

from . import show
from .opening import opened
from .options import Json, Url
from .refusals import Failed
from .telling import caller
from .values import duration

app = typer.Typer(help="Keys: who may call the service.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[str, typer.Argument(metavar="ID", help="The sixteen characters that list shows.", show_default=False)]


@app.callback()
def group() -> None:
    """Keys: who may call the service."""


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who it is for.", show_default=False)],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            "-s",
            metavar="RIGHT[:KIND[:NAMES]]",
            help="As in produce:queue:emails.*; may be said several times.",
            show_default=False,
        ),
    ],
    rate: Annotated[float | None, typer.Option("--rate", metavar="N", help="Requests a second.")] = None,
    burst: Annotated[float | None, typer.Option("--burst", metavar="N", help="Requests at once.")] = None,
    quota: Annotated[int | None, typer.Option("--quota", metavar="N", help="Requests a day.")] = None,
    expires: Annotated[
        float | None, typer.Option("--expires", metavar="TIME", help="For how long it is good.", parser=duration)
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Make a key, and print it: nobody can be told again.

    Rights are produce, consume and admin, of which the last includes the others; kinds are queue,
    stream, channel, job, schedule, result, lock and limit. What is left out is all.
    """
    with opened(url) as kit:
        key = _keys(kit).add(name, scope, rate=rate, burst=burst, quota=quota, expires=expires)
    _print(key, json)


@app.command("list")
def list_(url: Url = None, json: Json = False) -> None:
    """All keys, without their secrets."""
    with opened(url) as kit:
        rows = [show.plain(key) for key in _keys(kit).list()]
    columns = ("id", "name", "scopes", "rate", "quota", "created_at", "expires_at", "revoked_at")
    if not json:
        rows = [row | {"scopes": " ".join(row["scopes"])} for row in rows]
    show.listing(rows, columns, json, "there is no key: the service is for its own machine alone")


@app.command()
def rotate(
    id: Id,
    grace: Annotated[
        float,
        typer.Option("--grace", metavar="TIME", help="For how long the old secret is good (0s).", parser=duration),
    ] = 0.0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Give a key another secret, and print it."""
    with opened(url) as kit:
        key = _keys(kit).rotate(id, grace=grace)
    if key is None:
        raise Failed(f"there is no key {id} that lets anybody in: eventkit key list shows all")
    _print(key, json)


@app.command()
def revoke(id: Id, url: Url = None) -> None:
    """Let a key in no more, within a second."""
    with opened(url) as kit:
        if not _keys(kit).revoke(id):
            raise Failed(f"there is no key {id} that was not revoked: eventkit key list shows all")


def _keys(kit: Any) -> Any:
    from eventkit.access import ApiKeys

    return ApiKeys(kit, by=caller())


def _print(key: Any, json: bool) -> None:
    if json:
        show.document({"id": key.id, "key": str(key)})
    else:
        print(key)
