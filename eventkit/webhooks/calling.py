"""`Webhooks`: calls the URLs of jobs, in the workers of an app."""

import asyncio
from collections.abc import Iterable
from importlib.metadata import version
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import httpcore
from msgspec import Meta

from .. import arguments
from ..app.application import Application
from ..app.context import AsyncTaskContext
from ..codec import encode_json
from ..handling import Permanent, Retry, Snooze
from ..records import Task
from ..retry import Policy
from ..signatures import sign
from .addresses import AddressRefused, Guard
from .answers import LARGEST, Answer, failed, judge
from .hosts import Busy, Hosts
from .job import CALL, DEFAULT_TIMEOUT_MS, LONGEST_TIMEOUT_MS, callable_url
from .network import GuardedNetwork
from .receiving import ATTEMPT, JOB_ID, QUEUE, SIGNATURE

MARGIN_MS = 15_000
"""By how much the lease of a job is longer than the longest that its call takes."""

_IDLE = 100
_IDLE_SECONDS = 30.0
_CARRIED = ("traceparent", "tracestate")


class Webhooks:
    """Calls the URLs of jobs, for every worker of *app*, whatever queue they are in.

    With *secret*, or several while they are being changed, calls are signed.  *allow* are networks that may be called
    beside the public internet.  Of one host, *per_host* calls of a worker are under way at once.  *queue* is the one
    that workers work on for it where they are not told which.
    """

    def __init__(
        self,
        app: Application,
        *,
        secret: str | Iterable[str] = (),
        allow: Iterable[str] = (),
        per_host: int = 8,
        queue: str = "default",
    ) -> None:
        self._secrets = [secret] if isinstance(secret, str) else list(secret)
        if not all(self._secrets):
            raise ValueError("an empty secret proves nothing: leave secret= out, or give one")
        self._guard = Guard(allow)
        self._per_host = arguments.count("per_host", per_host, least=1)
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self._agent = f"eventkit/{version('eventkit-db')}"

        async def call(
            ctx: AsyncTaskContext,
            url: str,
            payload: Any,
            timeout_ms: Annotated[int, Meta(ge=1, le=LONGEST_TIMEOUT_MS)] = DEFAULT_TIMEOUT_MS,
            retry: Policy | None = None,
        ) -> Answer:
            return await self._call(ctx, url, payload, timeout_ms, retry)

        app.declare(call, name=CALL, queue=queue)
        app.closing = (*app.closing, self.aclose)

    async def aclose(self) -> None:
        """Let go of the connections of this event loop."""
        line = self._lines.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.pool.aclose()

    async def _call(
        self, ctx: AsyncTaskContext, url: str, payload: Any, timeout_ms: int, retry: Policy | None
    ) -> Answer:
        task = ctx.task
        try:
            _, host, port = callable_url(url)
        except ValueError as error:
            raise Permanent(str(error)) from None
        line = self._line()
        try:
            async with line.hosts.place(host, port):
                await _lease(ctx, timeout_ms + MARGIN_MS)
                async with asyncio.timeout(timeout_ms / 1000):
                    status, headers, body = await self._post(line, task, url, payload)
        except Busy as busy:
            raise Snooze(busy.delay) from None
        except AddressRefused as error:
            raise Permanent(str(error)) from None
        except TimeoutError:
            raise failed(f"{host} has not answered within {timeout_ms:,} ms", task.attempt, retry) from None
        except httpcore.ProtocolError:
            raise failed(f"{host} has not answered in HTTP", task.attempt, retry) from None
        except (httpcore.NetworkError, httpcore.TimeoutException) as error:
            why = str(error) or type(error).__name__
            raise failed(f"{host} could not be asked: {why}", task.attempt, retry) from None
        judge(status, headers, task.attempt, retry)
        return Answer(status, body[:LARGEST].decode("utf-8", "replace"), len(body) > LARGEST)

    async def _post(self, line: "_Line", task: Task[Any], url: str, payload: Any) -> tuple[int, Any, bytes]:
        """Status, headers and body of the answer; of a body that is too long, somewhat more than is kept."""
        sent, body = encode_json(payload).encode(), bytearray()
        async with line.pool.stream("POST", url, headers=self._headers(task, url, sent), content=sent) as response:
            async for chunk in response.aiter_stream():
                body += chunk
                if len(body) > LARGEST:
                    break
            return response.status, response.headers, bytes(body)

    def _headers(self, task: Task[Any], url: str, body: bytes) -> list[tuple[bytes, bytes]]:
        job = str(task.id)
        headers = {
            "Host": urlsplit(url).netloc,
            "User-Agent": self._agent,
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            JOB_ID: job,
            ATTEMPT: str(task.attempt),
            QUEUE: quote(task.queue, safe=" !#$&'()*+,-./:;<=>?@[]^_`{|}~"),
            **{name: task.headers[name] for name in _CARRIED if name in task.headers},
        }
        if self._secrets:
            headers[SIGNATURE] = sign(body, secrets=self._secrets, subject=job)
        return [(name.encode(), value.encode("ascii", "replace")) for name, value in headers.items()]

    def _line(self) -> "_Line":
        """Connections of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._lines:
            self._lines[loop] = _Line(self._guard, self._per_host)
        return self._lines[loop]


class _Line:
    """What calls of one event loop share."""

    def __init__(self, guard: Guard, per_host: int) -> None:
        self.hosts = Hosts(per_host)
        self.pool = httpcore.AsyncConnectionPool(
            max_connections=None,
            max_keepalive_connections=_IDLE,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=GuardedNetwork(guard),
        )


async def _lease(ctx: AsyncTaskContext, milliseconds: int) -> None:
    """Have the lease outlast the call, also if the database cannot be reached meanwhile to extend it."""
    # A third of what was claimed may be over before it is extended.
    if ctx.task.lease_ms * 2 // 3 < milliseconds:
        queue = ctx.kit.queue(ctx.task.queue)
        if not await queue.extend(ctx.task, milliseconds / 1000):
            raise Retry(error="the lease was lost before the call")
