"""Server-sent events: what is followed as it is committed, for one client each.

A client that has lost its connection comes back with the ``Last-Event-ID`` it has seen, and goes on there.  So one that
does not read is simply let go of: nothing is kept for it but what its socket holds, and a send that takes longer than
`ServiceSettings.slow_reader` ends the connection.  At every heartbeat the client's key is looked at again: one that was
revoked or has expired ends the stream.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from time import monotonic
from typing import Any, Protocol

from litestar import Request, Response
from litestar.types import ASGIApp, Receive, Scope, Send

from ..codec import encode_json
from ..errors import PASSING, EventkitError
from ..operations import Operation, Origin, Probe
from .keys import still_permitted
from .problems import Refusal, problem_of
from .service import Desk

AT_ONCE = 100
"""How many are read and sent at a time."""


class Source(Protocol):
    """A source of server-sent events: how to read it from a place on, and the probe to sleep on until there is more."""

    def place(self, after: int, *, seen: bool) -> Operation[Any]:
        """The place after a position, which the client says it has *seen* or has chosen."""
        ...

    def read(self, place: Any, limit: int) -> Operation[tuple[Any, ...]]:
        """Return what follows the place, and the next place."""
        ...

    def ahead(self, place: Any) -> Probe:
        """Whether there is more."""
        ...

    def position(self, item: Any) -> int:
        """Where the item stands."""
        ...


def framed(position: int, item: Any) -> str:
    """An item as an event of the protocol; JSON text may have line breaks between its parts."""
    text = encode_json(item).replace("\r", " ").replace("\n", "\ndata: ")
    return f"id: {position}\ndata: {text}\n\n"


class Live(Response[Any]):
    """An answer that goes on: the *first* items, read to see that nothing is wrong, and all to come."""

    def __init__(self, desk: Desk, source: Source, seen: frozenset[int], place: Any, first: Sequence[Any]) -> None:
        super().__init__(None, media_type="text/event-stream")
        self._desk = desk
        self._source = source
        self._seen = seen
        self._place = place
        self._first = first

    def to_asgi_response(self, request: Request[Any, Any, Any], **more: Any) -> ASGIApp:  # type: ignore[override]
        """The answer, as the server has it."""
        self._request = request
        return self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._desk.listener():
            sending, leaving = asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_left(receive))
            try:
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sending.cancel()
                leaving.cancel()
                await asyncio.wait({sending, leaving})
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error

    async def _send(self, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async with aclosing(self._texts()) as texts:
                async for text in texts:
                    async with asyncio.timeout(self._desk.settings.slow_reader):
                        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        except TimeoutError:
            self._desk.dropped += 1
            raise SlowReader from None
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @asynccontextmanager
    async def _asleep(self, probe: Probe) -> AsyncIterator["asyncio.Task[bool]"]:
        """A sleep that goes on while others are told that the service is there: to begin it anew would be a look."""
        sleeping = asyncio.create_task(self._desk.sleep(probe))
        try:
            yield sleeping
        finally:
            sleeping.cancel()
            await asyncio.wait({sleeping})

    async def _texts(self) -> AsyncGenerator[str, None]:
        desk, source, found = self._desk, self._source, self._first
        place, seen = self._place, self._seen
        heartbeat = Heartbeat(self._request, desk.settings.heartbeat)
        yield "retry: 1000\n\n"
        try:
            while True:
                await heartbeat.beat()
                if found:
                    places = [source.position(item) for item in found]
                    yield "".join([framed(at, item) for at, item in zip(places, found, strict=True) if at not in seen])
                else:
                    async with self._asleep(source.ahead(place)) as sleeping:
                        while not (await asyncio.wait({sleeping}, timeout=desk.settings.heartbeat))[0]:
                            await heartbeat.beat()
                            yield ": still here\n\n"
                    if not sleeping.result():
                        return
                try:
                    found, place, *_ = await desk.execute(source.read(place, AT_ONCE))
                except PASSING:
                    found = ()
        except (EventkitError, Refusal) as error:
            problem, _ = problem_of(error)
            yield f"event: error\ndata: {encode_json(problem)}\n\n"


class Heartbeat:
    """Looks every so many *seconds* whether the key of a *request* that goes on still lets it in."""

    def __init__(self, request: Request[Any, Any, Any], seconds: float) -> None:
        self._request, self._seconds = request, seconds
        self._looked = monotonic()

    async def beat(self) -> None:
        """Raise the `Refusal` that ends the stream, if it is time to look and the key does not."""
        if monotonic() - self._looked >= self._seconds:
            self._looked = monotonic()
            with suppress(*PASSING):  # A database that is away neither revokes a key nor gives anything to read.
                await still_permitted(self._request)


class SlowReader(Exception):
    """Raised to the server when a client reads too slowly, which ends its connection."""


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def live(desk: Desk, source: Source, start: Operation[Origin] | Operation[int] | int, seen: str | None) -> Live:
    """Follow *source* from *start*, or after the id that the client has *seen* last."""
    resumed = seen is not None and seen.isdecimal() and len(seen) <= 18
    if resumed:
        start = int(seen or 0)
    found: Any = await desk.execute(start) if isinstance(start, Operation) else start
    origin = found if isinstance(found, Origin) else Origin(found)
    if desk.listeners >= desk.settings.max_listeners:
        raise Refusal(429, "too_many_listeners", f"there are {desk.listeners:,} listeners: come back later")
    place = await desk.execute(source.place(origin.after, seen=resumed))
    found, place, *_ = await desk.execute(source.read(place, AT_ONCE))
    return Live(desk, source, origin.seen, place, found)
