"""Pages of other origins: access by configuration, and never with credentials."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import Started, connected

import eventkit
from eventkit.conformance.clauses import proves
from eventkit.http import NotForOthers, ServiceSettings, app, serve, settings_of

SHOP = "https://shop.example:8443"
ALLOWED, CREDENTIALS = "access-control-allow-origin", "access-control-allow-credentials"


class Asked:
    """The service with some origins, and its answers to their pages."""

    def __init__(self, runner: asyncio.Runner, kit: eventkit.AsyncEventKit) -> None:
        self._run = runner.run
        self._kit = kit

    def __call__(
        self, origins: list[str], method: str, path: str, set: dict[str, Any] | None = None, **headers: str
    ) -> httpx.Response:
        """Return one answer; *set* has further settings of the service."""

        async def ask() -> httpx.Response:
            settings = ServiceSettings(cors_origins=origins, **set or {})
            service = app(self._kit, settings=settings)
            transport = httpx.ASGITransport(service, raise_app_exceptions=False, client=("10.1.2.3", 4567))
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                return await client.request(method, path, headers=named)

        return self._run(ask())


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    """Answers to browsers do not depend on the database, so one kind is enough."""
    with asyncio.Runner() as runner:
        kit = runner.run(connected(f"sqlite:///{tmp_path}/served.db"))
        yield Asked(runner, kit)
        runner.run(kit.close())


def preflight(asked: Asked, origins: list[str], origin: str, method: str = "POST") -> httpx.Response:
    """Return the answer to a browser's preflight request for a task with a key."""
    wanted = {"access_control_request_method": method, "access_control_request_headers": "authorization, content-type"}
    return asked(origins, "OPTIONS", "/queues/q/tasks", origin=origin, **wanted)


@proves("E21")
def test_other_origins_are_refused_by_default(asked: Asked) -> None:
    """Answers lack the headers that permit other origins; only browsers check."""
    for answer in (preflight(asked, [], SHOP), asked([], "GET", "/queues", origin=SHOP)):
        assert answer.is_success
        assert not [name for name in answer.headers if name.startswith("access-control")]


@proves("E21")
def test_an_origin_that_was_named_may_ask(asked: Asked) -> None:
    """The preflight and the request are permitted, and errors are readable, too."""
    before = preflight(asked, [SHOP, "http://other.example"], SHOP)
    assert (before.status_code, before.headers[ALLOWED], before.headers["vary"]) == (204, SHOP, "Origin")
    assert {"POST", "DELETE"} <= set(before.headers["access-control-allow-methods"].split(", "))
    assert "authorization" in before.headers["access-control-allow-headers"].lower()
    for path, status in (("/queues", 200), ("/queues/none", 404)):
        answer = asked([SHOP], "GET", path, origin=SHOP)
        assert (answer.status_code, answer.headers[ALLOWED]) == (status, SHOP)
        assert "Retry-After" in answer.headers["access-control-expose-headers"]


@proves("E21")
@pytest.mark.parametrize(
    "origin", ["https://shop.example", "https://shop.example:84430", "https://evil.example", "null"]
)
def test_no_other_origin_may_ask(asked: Asked, origin: str) -> None:
    """This includes similar origins."""
    before, answer = preflight(asked, [SHOP], origin), asked([SHOP], "GET", "/queues", origin=origin)
    assert (before.status_code, answer.status_code) == (400, 200)
    assert ALLOWED not in [*before.headers, *answer.headers]


@proves("E21")
@pytest.mark.parametrize("origins", [[SHOP], ["*"]])
def test_credentials_are_never_permitted(asked: Asked, origins: list[str]) -> None:
    """Otherwise a page could read the dashboard of a signed-in user."""
    for answer in (preflight(asked, origins, SHOP), asked(origins, "GET", "/queues", origin=SHOP, cookie="a=b")):
        assert answer.headers[ALLOWED] in (SHOP, "*")
        assert CREDENTIALS not in answer.headers


@pytest.mark.parametrize("origin", ["shop.example", "https://shop.example/", "https://*.shop.example", "null", ""])
def test_what_is_no_origin_is_refused(asked: Asked, origin: str) -> None:
    """The error shows a valid origin."""
    with pytest.raises(ValueError, match=r"is not an origin: use \* or, for example, https://"):
        asked([origin], "GET", "/queues")


@proves("E21")
def test_any_origin_takes_a_key(tmp_path: Path) -> None:
    """Otherwise any open page in a browser of this machine could do everything."""
    url = f"sqlite:///{tmp_path}/open.db"
    with pytest.raises(NotForOthers, match="eventkit key add"):
        serve(url, port=0, settings=settings_of({"cors_origins": ["*"]}))


def test_the_command_names_them(tmp_path: Path) -> None:
    """Its origins replace those of the file."""
    url = f"sqlite:///{tmp_path}/served.db"
    eventkit.connect(url).close()
    (tmp_path / "eventkit.toml").write_text('[server]\ncors_origins = ["http://file.example"]\n')
    service = Started(url, tmp_path, "--cors-origin", SHOP, "--cors-origin", "http://two.example")
    try:
        answers = [
            httpx.get(f"{service.address}/queues", headers={"origin": origin}).headers.get(ALLOWED)
            for origin in (SHOP, "http://two.example", "http://file.example")
        ]
        assert answers == [SHOP, "http://two.example", None]
    finally:
        assert service.stop() == 0


CHANGES = (
    ("POST", "/queues/emails/pause"),
    ("POST", "/queues/emails/poll"),
    ("DELETE", "/queues/emails?force=true"),
    ("POST", "/dashboard/act"),
    ("POST", "/dashboard/login"),
)
EVIL: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:3000"},
    {"origin": "http://service:8080"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"origin": "http://service", "sec_fetch_site": "cross-site"},
]


@proves("E21")
@pytest.mark.parametrize("page", EVIL)
def test_a_page_of_another_origin_changes_nothing(asked: Asked, page: dict[str, str]) -> None:
    """A browser sends simple requests without a preflight, so they are refused before anything is done."""
    for method, path in CHANGES:
        refused = asked([SHOP], method, path, host="service", **page)
        assert (path, refused.status_code) == (path, 403)
        assert "public_origin" in refused.text
    assert asked([], "GET", "/queues", **page).status_code == 200


@proves("E21")
def test_pages_of_ours_and_programs_may_change_something(asked: Asked) -> None:
    """The host of the request, the public origin, and named CORS origins are accepted."""
    public = {"public_origin": "https://eventkit.example"}
    for set, headers in (
        ({}, {}),
        ({}, {"origin": "http://service", "sec_fetch_site": "same-origin"}),
        ({}, {"origin": "https://service:8443", "host": "service:8443"}),
        ({}, {"origin": "https://service", "host": "service:443"}),
        ({}, {"sec_fetch_site": "none"}),
        ({}, {"origin": SHOP, "sec_fetch_site": "cross-site"}),
        (public, {"origin": "https://eventkit.example", "sec_fetch_site": "same-origin"}),
    ):
        answer = asked([SHOP], "POST", "/queues/none/pause", set, **headers)
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_queue"), headers
    assert asked([], "POST", "/queues/none/pause", public, origin="http://eventkit.example").status_code == 403


@proves("E21")
@pytest.mark.parametrize("trusted", ["10.1.2.3", "10.0.0.0/8"])
def test_a_trusted_proxy_says_what_the_browser_has(asked: Asked, trusted: str) -> None:
    """It gives the host and the scheme; from any other client the headers are ignored."""
    said = {"x_forwarded_host": "eventkit.example", "x_forwarded_proto": "https", "origin": "https://eventkit.example"}
    for proxies, status in (([trusted], 404), (["10.9.9.9", "192.168.0.0/16"], 403), ([], 403)):
        answer = asked([], "POST", "/queues/none/pause", {"trusted_proxies": proxies}, **said)
        assert answer.status_code == status
    del said["origin"]
    for proxies, secure in (([trusted], True), ([], False)):
        page = asked([], "GET", "/", {"trusted_proxies": proxies}, **said)
        assert ("Secure" in page.headers["set-cookie"]) is secure
    with pytest.raises(ValueError, match="trusted_proxies takes addresses"):
        asked([], "GET", "/", {"trusted_proxies": ["proxy.example"]})
