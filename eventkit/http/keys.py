"""Who is calling, and whether they may: the guard that is asked before each route.

A key comes as ``Authorization: Bearer ek_…``.  What the database says of it is remembered for a moment, so that a key
that was revoked is refused within a second, by every process.  Where there has never been a key, a service that only
this machine reaches lets everybody in.

A browser that has signed in has the id of a session instead of the key; the session is in the database, where every
process finds it, and is good for as long as the secret that began it.
"""

import time
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

from litestar import Request
from litestar.connection import ASGIConnection

from .. import limits
from ..access.scopes import permits
from ..access.secrets import fresh_session, hash_of, hash_of_session, id_of, proves
from ..kit import AsyncKit
from ..operations import Operation
from ..operations.api_key import AnyApiKey, ApiKey, BeginSession, EndSession, FindApiKey, FindSession
from ..operations.schedule import ReadClock
from ..protocols import AsyncEventKit
from ..signatures import SignatureRefused, check
from .problems import Refusal
from .routing import ACCESS, Access

T = TypeVar("T")

REMEMBERED = 0.5
"""Seconds for which an answer of the database counts."""

SIGNATURE = "X-Eventkit-Signature"

_MOST = 10_000
_DAY_MS = 86_400_000
_KEY = "eventkit_key"

ANYBODY = "anybody"

SESSION_LASTS = 86_400
"""Seconds after which a browser has to sign in again."""

Connection = ASGIConnection[Any, Any, Any, Any]


class Keys:
    """The guard of a service.

    With *open_without_keys* everybody may do everything as long as there has never been a key.  With *body_secrets*
    each request whose method may change something has to be signed with one of them, whoever sends it.
    """

    def __init__(
        self, kit: AsyncEventKit, *, open_without_keys: bool = False, body_secrets: Iterable[str] = ()
    ) -> None:
        if not isinstance(kit, AsyncKit):
            raise TypeError("the service works with an async kit: await eventkit.connect_async(url)")
        self._execute = kit._connection.execute
        self._open_without_keys = open_without_keys
        self._body_secrets = list(body_secrets)
        self._known: dict[str, tuple[float, Any]] = {}
        self._none_until = 0.0

    async def __call__(self, connection: Connection, access: Access) -> None:
        """Let the request pass, or raise the `Refusal` that is its answer."""
        await self.check(connection, access)
        if (key := connection.scope["state"].get(_KEY)) is not None:
            await self._within_limits(key)
        if self._body_secrets and isinstance(connection, Request) and connection.method not in ("GET", "HEAD"):
            await self._signed(connection)

    async def check(self, connection: Connection, access: Access) -> None:
        """Refuse who may not do that; neither counts the request, nor asks for a signature."""
        key = await self._caller(connection)
        if key is not None:
            connection.scope["state"][_KEY] = key
            name = None if access.on is None else connection.path_params.get(access.on)
            # In which queue a job is, its route knows, and looks at the key itself.
            if access.on != "job" and not permits(key.scopes, access.scope, access.on, name):
                raise _forbidden(access.scope, access.on, name)

    def allows(self, connection: Connection, access: Access) -> bool:
        """Whether whoever was let in might do that as well."""
        key = connection.scope["state"].get(_KEY)
        return key is None or permits(key.scopes, access.scope, access.on, None)

    async def locked(self) -> bool:
        """Whether there has ever been a key, so that it takes one."""
        return bool(await self._execute(AnyApiKey()))

    async def authenticate(self, presented: str) -> ApiKey | None:
        """Return the key that *presented* is, or that began the session of that id; None if it is not valid."""
        if (session := hash_of_session(presented)) is not None:
            return await self._recall(session, FindSession(session))
        if (id := id_of(presented)) is None:
            return None
        held = await self._recall(id, FindApiKey(id))
        return held.key if held is not None and proves(presented, held.hashes) else None

    async def begin_session(self, presented: str) -> str:
        """The id of a new session for a key that lets its holder in."""
        if (id := id_of(presented)) is None:
            raise _unauthorized("this is no key: sign in with one that eventkit key add has made")
        session = fresh_session()
        await self._execute(BeginSession(hash_of_session(session) or "", id, hash_of(presented), 1000 * SESSION_LASTS))
        return session

    async def end_session(self, session: str) -> None:
        """Let a session in no more; other processes notice within a second."""
        if (hashed := hash_of_session(session)) is not None:
            await self._execute(EndSession(hashed))
            self._known.pop(hashed, None)

    async def _recall(self, name: str, operation: Operation[T]) -> T:
        """The answer to *operation*, which was asked a moment ago at most."""
        now = time.monotonic()
        asked, answer = self._known.get(name, (float("-inf"), None))
        if now - asked > REMEMBERED:
            if len(self._known) >= _MOST:
                self._known.clear()
            answer = await self._execute(operation)
            self._known[name] = (now, answer)
        found: T = answer
        return found

    async def _caller(self, connection: Connection) -> ApiKey | None:
        """Whose request it is; None where everybody may do everything."""
        presented = connection.headers.get("authorization")
        if presented is None:
            if self._open_without_keys and await self._no_key():
                if not to_this_machine(connection):
                    raise Refusal(403, "forbidden", "without keys the service answers to localhost and addresses alone")
                return None
            raise _unauthorized("this takes a key: send Authorization: Bearer ek_…, as eventkit key add makes it")
        scheme, _, text = presented.partition(" ")
        key = await self.authenticate(text.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise _unauthorized("there is no such key, or it was revoked or has expired: ask for another one")
        return key

    async def _no_key(self) -> bool:
        now = time.monotonic()
        if now < self._none_until:
            return True
        if await self.locked():
            self._open_without_keys = False
            return False
        self._none_until = now + REMEMBERED
        return True

    async def _within_limits(self, key: ApiKey) -> None:
        """Count the request, as all services of the database do together."""
        name = f"eventkit.key:{key.id}"
        if key.rate is not None and not await self._execute(limits.bucket(name, key.rate, key.burst)):
            raise _too_many(f"the key may be used {key.rate:g} times a second", max(1, round(1 / key.rate)))
        if key.quota is not None and not await self._execute(limits.window(name, key.quota, _DAY_MS / 1000)):
            left = _DAY_MS - await self._execute(ReadClock()) % _DAY_MS
            raise _too_many(f"the key may be used {key.quota:,} times a day", left // 1000 + 1)

    async def _signed(self, request: "Request[Any, Any, Any]") -> None:
        path = request.scope["raw_path"].decode("ascii")
        query = request.scope["query_string"].decode("ascii")
        subject = f"{request.method} {path}{'?' if query else ''}{query}"
        # A key in a header has no line break, so none can be moved into the body or out of it.
        given = [value.decode("latin-1") for name, value in request.scope["headers"] if name == b"idempotency-key"]
        subject += "".join(f"\n{key}\n" for key in given)
        try:
            check(
                await request.body(),
                request.headers.get(SIGNATURE),
                secrets=self._body_secrets,
                subject=subject,
            )
        except SignatureRefused as error:
            raise Refusal(401, "not_signed", f"{error}") from None


def to_this_machine(connection: Connection) -> bool:
    """Whether a request names this machine by ``localhost`` or an address.

    Where no key is needed, a page of somebody else's whose name they have made to mean this machine could otherwise ask
    for everything, because to a browser it is of the same origin.
    """
    return _is_this_machine(connection.headers.get("host", ""))


@lru_cache(1024)
def _is_this_machine(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False


async def still_permitted(connection: Connection) -> None:
    """Refuse a request that goes on, if its key does not let it in any more."""
    guard, access = connection.app.state.get("guard"), connection.route_handler.opt.get(ACCESS)
    if guard is not None and access is not None and access.scope != "open":
        await (guard.check if isinstance(guard, Keys) else guard)(connection, access)


def caller(connection: Connection) -> str:
    """Whose request it is, for ``eventkit.audit``: the id of the key, or ``anybody`` where it takes none."""
    key = connection.scope["state"].get(_KEY)
    return key.id if isinstance(key, ApiKey) else ANYBODY


def require(connection: Connection, right: str, *kinds: str, name: str | None) -> None:
    """Refuse a caller who may not do that to a thing which the path does not name; one of the *kinds* is enough."""
    key = connection.scope["state"].get(_KEY)
    if isinstance(key, ApiKey) and not any(permits(key.scopes, right, kind, name) for kind in kinds):
        raise _forbidden(right, kinds[0], name)


def _unauthorized(error: str) -> Refusal:
    return Refusal(401, "unauthorized", error, {"www-authenticate": "Bearer"})


def _forbidden(right: str, kind: str | None, name: str | None) -> Refusal:
    needed = ":".join(part for part in (right, kind, name) if part is not None)
    return Refusal(403, "forbidden", f"the key may not do this: it takes the scope {needed}")


def _too_many(error: str, seconds: int) -> Refusal:
    return Refusal(
        429, "try_later", f"{error}, by all who have it: try again in {seconds} s", {"retry-after": f"{seconds}"}
    )
