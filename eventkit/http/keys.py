"""Access: `Keys`, the guard that authenticates requests and checks their rights, and the hosts of browsers.

Clients send ``Authorization: Bearer ek_…``.  Lookups are cached briefly, so that every process refuses a revoked key
within a second.  As long as no key was ever added, a service that listens only on loopback allows all requests.

A browser sends the id of a session instead of the key.  Sessions are in the database, shared by all processes, and are
valid as long as the secret of their key.
"""

import time
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

from litestar import Request

from .. import locks
from ..access import fresh_session, hash_of, hash_of_session, id_of, permits, proves
from ..kit import AsyncKit
from ..operations import Operation
from ..operations.admin import AnyApiKey, ApiKey, BeginSession, EndSession, FindApiKey, FindSession
from ..operations.schedule import ReadClock
from ..protocols import AsyncEventKit
from ..webhooks.signing import SIGNATURE, SignatureRefused, check
from .bodies import Refusal
from .routing import ACCESS, Access, Connection, HTTPRequest

T = TypeVar("T")

REMEMBERED = 0.5  # Seconds for which a lookup is cached.

_MOST = 10_000
_DAY_MS = 86_400_000
_KEY = "eventkit_key"

ANYBODY = "anybody"

SESSION_LASTS = 86_400  # Seconds after which a browser must sign in again.


class Keys:
    """The guard of a service.

    *open_without_keys* allows all requests as long as no key was ever added.  With *body_secrets* all requests except
    GET and HEAD must be signed with one of them.
    """

    def __init__(
        self, kit: AsyncEventKit, *, open_without_keys: bool = False, body_secrets: Iterable[str] = ()
    ) -> None:
        if not isinstance(kit, AsyncKit):
            raise TypeError("the service needs an async kit: await eventkit.connect_async(url)")
        self._execute = kit._connection.execute
        self._open_without_keys = open_without_keys
        self._body_secrets = list(body_secrets)
        self._known: dict[str, tuple[float, Any]] = {}

    async def __call__(self, connection: Connection, access: Access) -> None:
        """Allow the request, or raise `Refusal`."""
        await self.check(connection, access)
        if (key := connection.scope["state"].get(_KEY)) is not None:
            await self._within_limits(key)
        if self._body_secrets and isinstance(connection, Request) and connection.method not in ("GET", "HEAD"):
            await self._signed(connection)

    async def check(self, connection: Connection, access: Access) -> None:
        """Check the rights of a request, without counting it or verifying its signature."""
        key = await self._caller(connection)
        if key is not None:
            connection.scope["state"][_KEY] = key
            name = None if access.on is None else connection.path_params.get(access.on)
            # The path has no queue of a webhook, so its routes check the rights themselves.
            if access.on != "webhook" and not permits(key.scopes, access.scope, access.on, name):
                raise _forbidden(access.scope, access.on, name)

    def allows(self, connection: Connection, access: Access) -> bool:
        """Return whether the caller of a permitted request also has this right to something."""
        key = connection.scope["state"].get(_KEY)
        return key is None or permits(key.scopes, access.scope, access.on, None)

    async def locked(self) -> bool:
        """Return whether a key was ever added, which makes keys mandatory."""
        return bool(await self._execute(AnyApiKey()))

    async def authenticate(self, presented: str) -> ApiKey | None:
        """Return the key of a key or session id; None if it is not valid."""
        if (session := hash_of_session(presented)) is not None:
            return await self._recall(session, FindSession(session))
        if (id := id_of(presented)) is None:
            return None
        held = await self._recall(id, FindApiKey(id))
        return held.key if held is not None and proves(presented, held.hashes) else None

    async def begin_session(self, presented: str) -> str:
        """Begin a session for a valid key and return its id."""
        if (id := id_of(presented)) is None:
            raise _unauthorized("this is not a key: sign in with a key of eventkit key add")
        session = fresh_session()
        await self._execute(BeginSession(hash_of_session(session) or "", id, hash_of(presented), 1000 * SESSION_LASTS))
        return session

    async def end_session(self, session: str) -> None:
        """End a session; other processes notice within a second."""
        if (hashed := hash_of_session(session)) is not None:
            await self._execute(EndSession(hashed))
            self._known.pop(hashed, None)

    async def _recall(self, name: str, operation: Operation[T]) -> T:
        """Return the result of *operation*, cached for `REMEMBERED` seconds."""
        now = time.monotonic()
        at, answer = self._known.get(name, (float("-inf"), None))
        if now - at > REMEMBERED:
            if len(self._known) >= _MOST:
                self._known.clear()
            answer = await self._execute(operation)
            self._known[name] = (now, answer)
        found: T = answer
        return found

    async def _caller(self, connection: Connection) -> ApiKey | None:
        """Return the key of the caller; None if the service is open."""
        presented = connection.headers.get("authorization")
        if presented is None:
            if self._open_without_keys and not await self._recall("", AnyApiKey()):
                if not to_this_machine(connection):
                    raise Refusal(403, "forbidden", "without keys only localhost and addresses are valid hosts")
                return None
            raise _unauthorized("a key is required: send Authorization: Bearer ek_…, see eventkit key add")
        scheme, _, text = presented.partition(" ")
        key = await self.authenticate(text.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise _unauthorized("the key is unknown, revoked or expired: request a new one")
        return key

    async def _within_limits(self, key: ApiKey) -> None:
        """Count the request against the limits of the key, which all services of the database share."""
        name = f"eventkit.key:{key.id}"
        if key.rate is not None and not await self._execute(locks.bucket(name, key.rate, key.burst)):
            raise _too_many(f"the key is limited to {key.rate:g} requests per second", max(1, round(1 / key.rate)))
        if key.quota is not None and not await self._execute(locks.window(name, key.quota, _DAY_MS / 1000)):
            left = _DAY_MS - await self._execute(ReadClock()) % _DAY_MS
            raise _too_many(f"the key is limited to {key.quota:,} requests per day", left // 1000 + 1)

    async def _signed(self, request: HTTPRequest) -> None:
        path = request.scope["raw_path"].decode("ascii")
        query = request.scope["query_string"].decode("ascii")
        subject = f"{request.method} {path}{'?' if query else ''}{query}"
        # A header value has no line break, so the key cannot be confused with the body.
        given = [value.decode("latin-1") for name, value in request.scope["headers"] if name == b"idempotency-key"]
        subject += "".join(f"\n{key}\n" for key in given)
        body, signature = await request.body(), request.headers.get(SIGNATURE)
        try:
            check(body, signature, secrets=self._body_secrets, subject=subject)
        except SignatureRefused as error:
            raise Refusal(401, "not_signed", f"{error}") from None


@lru_cache(1024)
def _is_this_machine(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False


def to_this_machine(connection: Connection) -> bool:
    """Return whether the Host header of a request is ``localhost`` or an address.

    Without keys, a foreign page whose host name resolves to this machine (DNS rebinding) would otherwise have full
    access, because the browser considers it to be of the same origin.
    """
    return _is_this_machine(connection.headers.get("host", ""))


_PORTS = {"http": ":80", "https": ":443"}


def is_at(origin: str, connection: Connection) -> bool:
    """Return whether *origin* is the host of the request, which may omit the default port of the scheme."""
    scheme, _, netloc = origin.lower().partition("://")
    host: str = connection.headers.get("host", "").lower()
    return bool(netloc) and host.removesuffix(_PORTS.get(scheme, "")) == netloc


async def still_permitted(connection: Connection) -> None:
    """Raise `Refusal` for a long request whose key has become invalid."""
    guard, access = connection.app.state.get("guard"), connection.route_handler.opt.get(ACCESS)
    if guard is not None and access is not None and access.scope != "open":
        await (guard.check if isinstance(guard, Keys) else guard)(connection, access)


def caller(connection: Connection) -> str:
    """Return the caller for ``eventkit.audit``: the id of the key, or ``anybody`` without keys."""
    key = connection.scope["state"].get(_KEY)
    return key.id if isinstance(key, ApiKey) else ANYBODY


def require(connection: Connection, right: str, *kinds: str, name: str | None) -> None:
    """Raise `Refusal` unless the caller has the right to a thing of one of *kinds* that the path does not name."""
    key = connection.scope["state"].get(_KEY)
    if isinstance(key, ApiKey) and not any(permits(key.scopes, right, kind, name) for kind in kinds):
        raise _forbidden(right, kinds[0], name)


def _unauthorized(error: str) -> Refusal:
    return Refusal(401, "unauthorized", error, {"www-authenticate": "Bearer"})


def _forbidden(right: str, kind: str | None, name: str | None) -> Refusal:
    needed = ":".join(part for part in (right, kind, name) if part is not None)
    return Refusal(403, "forbidden", f"the key lacks the scope {needed}")


def _too_many(error: str, seconds: int) -> Refusal:
    return Refusal(
        429, "try_later", f"{error}, over all its clients: try again in {seconds} s", {"retry-after": f"{seconds}"}
    )
