"""`Webhooks`: the task of an app that calls the URLs of webhooks."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from time import monotonic
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import httpcore
import msgspec
from msgspec import Meta

from .. import checks
from ..app.app import App, AsyncApp
from ..app.task import AsyncTaskContext
from ..codec import encode_json
from ..handling import Permanent, Retry, Snooze
from ..retry import Policy, delay_after, encode
from ..values import Task
from .guard import AddressRefused, Guard, GuardedNetwork
from .signing import ATTEMPT, QUEUE, SIGNATURE, WEBHOOK_ID, sign
from .webhook import CALL, DEFAULT_TIMEOUT_MS, LONGEST_TIMEOUT_MS, callable_url

AGAIN = frozenset({408, 425, 429})  # The 4xx statuses that another attempt may cure.
LARGEST = 65_536  # The maximum number of bytes of a response body that are kept.
MARGIN_MS = 15_000  # How much longer the lease of a webhook is than its timeout.

_LONGEST_DELAY = 86_400.0
_LONGEST = 60.0
_IDLE = 100
_IDLE_SECONDS = 30.0
_CARRIED = ("traceparent", "tracestate")

Headers = Sequence[tuple[bytes, bytes]]


class Answer(msgspec.Struct, frozen=True):
    """The result of a webhook: the receiver's response.  Only the beginning of a longer *body* is kept."""

    status: int
    body: str
    truncated: bool = False


def judge(status: int, headers: Headers, attempt: int, retry: Policy | None) -> None:
    """Raise `Retry` or `Permanent` for a response that is not 2xx.

    The error does not quote the body: errors are logged, and the body may repeat the payload.
    """
    if 200 <= status < 300:
        return
    if status in AGAIN or status >= 500:
        raise failed(f"the receiver answered {status}", attempt, retry, retry_after(headers))
    why = "redirects are not followed" if 300 <= status < 400 else "another attempt would get the same answer"
    raise Permanent(f"the receiver answered {status}: {why}")


def failed(error: str, attempt: int, retry: Policy | None, at_least: float | None = None) -> Retry:
    """Return a `Retry` after the delay of the webhook's policy or the queue's, but not before *at_least* seconds."""
    own = None if retry is None else delay_after(attempt, encode(retry)) / 1000
    if at_least is not None:
        return Retry(max(at_least, own or 0.0), error)
    return Retry(own, error)


def retry_after(headers: Headers) -> float | None:
    """Return the seconds of the ``Retry-After`` header, at most a day; None if there are none."""
    given = {name.lower(): value.decode("latin-1").strip() for name, value in headers}
    value = given.get(b"retry-after", "")
    if value.isascii() and value.isdigit() and len(value) < 10:
        seconds = float(value)
    else:
        then = _moment(value)
        # A date is relative to the receiver's clock.
        seconds = 0.0 if then is None else then - (_moment(given.get(b"date", "")) or time.time())
    return min(seconds, _LONGEST_DELAY) if seconds > 0 else None


def _moment(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


class _Host:
    def __init__(self, most: int) -> None:
        self.slots = asyncio.Semaphore(most)
        self.calls = self.snoozed = 0
        self.seconds = 1.0


class _LoopState:
    """Slots and connections that the calls of one event loop share.

    A host has at most *most* running calls; as many more may wait, and further ones are snoozed.
    """

    def __init__(self, guard: Guard, most: int) -> None:
        self._most = most
        self._hosts: dict[tuple[str, int], _Host] = {}
        self.pool = httpcore.AsyncConnectionPool(
            max_connections=None,
            max_keepalive_connections=_IDLE,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=GuardedNetwork(guard),
        )

    @asynccontextmanager
    async def slot(self, host: str, port: int) -> AsyncIterator[None]:
        """Hold one of the slots of a host; raise `Snooze`, with the expected delay, if too many calls wait."""
        key = (host, port)
        state = self._hosts.setdefault(key, _Host(self._most))
        if state.calls >= 2 * self._most:
            state.snoozed += 1
            raise Snooze(min(_LONGEST, max(0.1, state.seconds * (1 + state.snoozed / self._most))))
        state.calls += 1
        try:
            async with state.slots:
                began = monotonic()
                try:
                    yield
                finally:
                    state.seconds += (monotonic() - began - state.seconds) / 8
        finally:
            state.calls -= 1
            if state.calls <= self._most:
                state.snoozed = 0
            if not state.calls:
                del self._hosts[key]


class Webhooks:
    """Calls the URLs of webhooks in the workers of *app*, in all queues.

    *secret* signs the calls; pass several while rotating them.  *allow* are networks that may be called besides public
    addresses.  A worker makes at most *per_host* calls of one host at once.  *queue* is the default queue of the task.
    """

    def __init__(
        self,
        app: App | AsyncApp,
        *,
        secret: str | Iterable[str] = (),
        allow: Iterable[str] = (),
        per_host: int = 8,
        queue: str = "default",
    ) -> None:
        self._secrets = [secret] if isinstance(secret, str) else list(secret)
        if not all(self._secrets):
            raise ValueError("the secret is empty: pass one, or leave secret= out")
        self._guard = Guard(allow)
        self._per_host = checks.count("per_host", per_host, least=1)
        self._states: dict[asyncio.AbstractEventLoop, _LoopState] = {}
        self._agent = f"eventkit/{version('eventkit-db')}"
        app.task(name=CALL, queue=queue)(self._call)
        app.closing = (*app.closing, self.aclose)

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        state = self._states.pop(asyncio.get_running_loop(), None)
        if state is not None:
            await state.pool.aclose()

    async def _call(
        self,
        ctx: AsyncTaskContext,
        url: str,
        payload: Any,
        timeout_ms: Annotated[int, Meta(ge=1, le=LONGEST_TIMEOUT_MS)] = DEFAULT_TIMEOUT_MS,
        retry: Policy | None = None,
    ) -> Answer:
        task = ctx.task
        try:
            _, host, port = callable_url(url)
        except ValueError as error:
            raise Permanent(str(error)) from None
        state = self._state()
        try:
            async with state.slot(host, port):
                # The lease lasts beyond the call, in case the worker cannot reach the database meanwhile; a third of
                # it may pass before the worker extends it.
                needed, queue = timeout_ms + MARGIN_MS, ctx.kit.queue(task.queue)
                if task.lease_ms * 2 // 3 < needed and not await queue.extend(task, needed / 1000):
                    raise Retry(error="the lease was lost before the call")
                async with asyncio.timeout(timeout_ms / 1000):
                    status, headers, body = await self._post(state, task, url, payload)
        except AddressRefused as error:
            raise Permanent(str(error)) from None
        except TimeoutError:
            raise failed(f"{host} did not answer within {timeout_ms:,} ms", task.attempt, retry) from None
        except httpcore.ProtocolError:
            raise failed(f"{host} did not answer in HTTP", task.attempt, retry) from None
        except (httpcore.NetworkError, httpcore.TimeoutException) as error:
            why = str(error) or type(error).__name__
            raise failed(f"cannot connect to {host}: {why}", task.attempt, retry) from None
        judge(status, headers, task.attempt, retry)
        return Answer(status, body[:LARGEST].decode("utf-8", "replace"), len(body) > LARGEST)

    async def _post(self, state: _LoopState, task: Task[Any], url: str, payload: Any) -> tuple[int, Any, bytes]:
        """Return status, headers and body of the response; reading stops after `LARGEST` bytes."""
        sent, body = encode_json(payload).encode(), bytearray()
        async with state.pool.stream("POST", url, headers=self._headers(task, url, sent), content=sent) as response:
            async for chunk in response.aiter_stream():
                body += chunk
                if len(body) > LARGEST:
                    break
            return response.status, response.headers, bytes(body)

    def _headers(self, task: Task[Any], url: str, body: bytes) -> list[tuple[bytes, bytes]]:
        webhook = str(task.id)
        headers = {
            "Host": urlsplit(url).netloc,
            "User-Agent": self._agent,
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            WEBHOOK_ID: webhook,
            ATTEMPT: str(task.attempt),
            QUEUE: quote(task.queue, safe=" !#$&'()*+,-./:;<=>?@[]^_`{|}~"),
            **{name: task.headers[name] for name in _CARRIED if name in task.headers},
        }
        if self._secrets:
            headers[SIGNATURE] = sign(body, secrets=self._secrets, subject=webhook)
        return [(name.encode(), value.encode("ascii", "replace")) for name, value in headers.items()]

    def _state(self) -> _LoopState:
        loop = asyncio.get_running_loop()
        if loop not in self._states:
            self._states[loop] = _LoopState(self._guard, self._per_host)
        return self._states[loop]
