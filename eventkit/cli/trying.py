"""``eventkit doctor``, ``bench`` and ``demo``: what is wrong, how fast it is, what it is."""

from typing import Annotated, Any

import typer

from . import settings, show
from .options import Json, Url
from .refusals import Failed


def doctor(url: Url = None, json: Json = False) -> None:
    """Look for what commonly goes wrong.

    For each thing that is found, it says what to do. Exit code 1 if something is bad.
    """
    from .examining import examine

    findings = examine(settings.url(url))
    bad = sum(finding.level == "bad" for finding in findings)
    if json:
        show.document({"ok": not bad, "findings": findings})
    else:
        for finding in findings:
            mark = {"good": "ok  ", "doubtful": "look", "bad": "BAD "}[finding.level]
            print(f"{mark}  {show.harmless(finding.what)}")
            if finding.remedy:
                print(f"      → {show.harmless(finding.remedy)}")
    if bad:
        raise Failed(f"{bad} {'thing has' if bad == 1 else 'things have'} to be mended: see above")


def bench(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=60, help="How long each measure takes.")] = 1.0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Measure how fast this database is from here.

    In a queue, a topic and a channel of its own, which are cleared away afterwards.
    """
    from .measuring import measure

    rows: list[dict[str, Any]] = []
    for name, value, unit in measure(settings.url(url), seconds):
        rows.append({"measure": name, "value": value, "unit": unit})
        show.note(f"{name}: {value:,} {unit}")
    show.listing(rows, ("measure", "value", "unit"), json, "nothing")


def demo(
    part: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PART", help="For two terminals: listen in one, order ITEM in the other.", show_default=False
        ),
    ] = None,
) -> None:
    """See the main thing happen, in a new file of this folder."""
    from eventkit.demo import main

    if code := main(part or []):
        raise typer.Exit(code)
