"""The arguments and options that many commands share."""

from datetime import datetime
from typing import Annotated

import typer

from .values import duration, moment

Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", envvar="EVENTKIT_URL", help="The database, as in sqlite:///shop.db."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many at most.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.", show_default=False)]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the stream.", show_default=False)]
Id = Annotated[int, typer.Argument(metavar="ID", help="The number of the task.", show_default=False)]
Token = Annotated[
    int, typer.Argument(metavar="TOKEN", help="The token that poll has printed with it.", show_default=False)
]
Payload = Annotated[
    str | None, typer.Argument(metavar="PAYLOAD", help="JSON, as in '{\"id\": 42}'.", show_default=False)
]
File = Annotated[
    str | None,
    typer.Option("--file", "-f", metavar="FILE", help="One payload a line (NDJSON), of any number; - for stdin."),
]
Headers = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header; may be said several times.")
]
Duration = Annotated[float, typer.Option(parser=duration, metavar="TIME")]
OlderThan = Annotated[
    float | None,
    typer.Option("--older-than", parser=duration, metavar="TIME", help="What is older than that, as in 12h or 7d."),
]
MaxKeep = Annotated[int | None, typer.Option("--max-keep", metavar="N", min=0, help="All but the newest N.")]
Since = Annotated[
    datetime | None,
    typer.Option("--since", parser=moment, metavar="MOMENT", help="What is there from 2026-01-31T08:00 on."),
]
