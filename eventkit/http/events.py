"""Server-sent events, and responses that clients wait for."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from time import monotonic
from typing import Any, Protocol, TypeVar

from litestar import Request, Response
from litestar.types import ASGIApp, Receive, Scope, Send

from ..codec import encode_json
from ..errors import PASSING, EventkitError
from ..operations import Operation, Origin, Probe
from ..plans import completed
from .keys import still_permitted
from .requests import Refusal, problem_of
from .service import ServiceContext

T = TypeVar("T")


async def while_connected(
    request: "Request[Any, Any, Any]", answer: Awaitable[T], give_back: Callable[[T], Awaitable[Any]] | None = None
) -> T:
    """Return the result of *answer*; pass it to *give_back* instead if the client disconnects first."""
    work, gone = asyncio.ensure_future(answer), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if gone.done():
                raise Refusal(499, "gone", "the client disconnected before the response")
            await still_permitted(request)
            return work.result()
        except BaseException:
            await completed(_take_back(work, give_back))
            raise
    finally:
        work.cancel()
        gone.cancel()


async def _take_back(work: "asyncio.Future[T]", give_back: Callable[[T], Awaitable[Any]] | None) -> None:
    work.cancel()
    await asyncio.wait({work})
    if give_back is not None and not work.cancelled() and work.exception() is None:
        await give_back(work.result())


async def _gone(request: "Request[Any, Any, Any]") -> None:
    """Return when the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


AT_ONCE = 100
"""Items per read."""


class Source(Protocol):
    """A source of server-sent events: operations to read it, and a probe for new items."""

    def place(self, after: int, *, seen: bool) -> Operation[Any]:
        """Return the operation for the place after a position, which the client has *seen* or chosen."""
        ...

    def read(self, place: Any, limit: int) -> Operation[tuple[Any, ...]]:
        """Return the operation for the items after a place, and the next place."""
        ...

    def ahead(self, place: Any) -> Probe:
        """Return the probe for more items."""
        ...

    def position(self, item: Any) -> int:
        """Return the position of an item."""
        ...


def framed(position: int, item: Any) -> str:
    """Format an item as an event; JSON text may have line breaks between its parts."""
    text = encode_json(item).replace("\r", " ").replace("\n", "\ndata: ")
    return f"id: {position}\ndata: {text}\n\n"


class Live(Response[Any]):
    """A streaming response: the *first* items, which were read so that errors get a status, and all that follow."""

    def __init__(
        self, context: ServiceContext, source: Source, seen: frozenset[int], place: Any, first: Sequence[Any]
    ) -> None:
        super().__init__(None, media_type="text/event-stream")
        self._context = context
        self._source = source
        self._seen = seen
        self._place = place
        self._first = first

    def to_asgi_response(self, request: Request[Any, Any, Any], **more: Any) -> ASGIApp:  # type: ignore[override]
        """Return the ASGI response."""
        self._request = request
        return self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._context.listener():
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
                    async with asyncio.timeout(self._context.settings.slow_reader):
                        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        except TimeoutError:
            self._context.dropped += 1
            raise SlowReader from None
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @asynccontextmanager
    async def _sleeping(self, probe: Probe) -> AsyncIterator["asyncio.Task[bool]"]:
        """Sleep in a task that outlives heartbeats, because each new sleep would read the database."""
        sleeping = asyncio.create_task(self._context.sleep(probe))
        try:
            yield sleeping
        finally:
            sleeping.cancel()
            await asyncio.wait({sleeping})

    async def _texts(self) -> AsyncGenerator[str, None]:
        context, source, found = self._context, self._source, self._first
        place, seen = self._place, self._seen
        heartbeat = Heartbeat(self._request, context.settings.heartbeat)
        yield "retry: 1000\n\n"
        try:
            while True:
                await heartbeat.beat()
                if found:
                    places = [source.position(item) for item in found]
                    yield "".join([framed(at, item) for at, item in zip(places, found, strict=True) if at not in seen])
                else:
                    async with self._sleeping(source.ahead(place)) as sleeping:
                        while not (await asyncio.wait({sleeping}, timeout=context.settings.heartbeat))[0]:
                            await heartbeat.beat()
                            yield ": still here\n\n"
                    if not sleeping.result():
                        return
                try:
                    found, place, *_ = await context.execute(source.read(place, AT_ONCE))
                except PASSING:
                    found = ()
        except (EventkitError, Refusal) as error:
            problem, _ = problem_of(error)
            yield f"event: error\ndata: {encode_json(problem)}\n\n"


class Heartbeat:
    """Checks every *seconds* whether the key of a streaming *request* is still valid."""

    def __init__(self, request: Request[Any, Any, Any], seconds: float) -> None:
        self._request, self._seconds = request, seconds
        self._checked_at = monotonic()

    async def beat(self) -> None:
        """Raise the `Refusal` that ends the stream, if a check is due and the key is not valid."""
        if monotonic() - self._checked_at >= self._seconds:
            self._checked_at = monotonic()
            with suppress(*PASSING):  # A database that is unavailable revokes no key.
                await still_permitted(self._request)


class SlowReader(Exception):
    """Raised to the server when a client reads too slowly, which ends its connection."""


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def live(
    context: ServiceContext, source: Source, start: Operation[Origin] | Operation[int] | int, seen: str | None
) -> Live:
    """Follow *source* from *start*, or after the last id that the client has *seen*."""
    resumed = seen is not None and seen.isdecimal() and len(seen) <= 18
    if resumed:
        start = int(seen or 0)
    found: Any = await context.execute(start) if isinstance(start, Operation) else start
    origin = found if isinstance(found, Origin) else Origin(found)
    if context.listeners >= context.settings.max_listeners:
        raise Refusal(429, "too_many_listeners", f"too many listeners ({context.listeners:,}): try again later")
    place = await context.execute(source.place(origin.after, seen=resumed))
    found, place, *_ = await context.execute(source.read(place, AT_ONCE))
    return Live(context, source, origin.seen, place, found)
