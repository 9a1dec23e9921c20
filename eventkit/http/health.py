"""Whether the service is there, and whether it can do its work."""

import msgspec

from .routing import route


class Alive(msgspec.Struct, frozen=True):
    """That somebody answers."""

    status: str = "ok"


@route("GET", "/healthz", scope="open")
async def healthz() -> Alive:
    """Whether the process answers; it says nothing of the database."""
    return Alive()


routes = [healthz]
