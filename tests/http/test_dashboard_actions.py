"""Actions of the pages, and the rights they need: forms of the service's pages, sent by authorised users."""

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browsing
import httpx
import pytest
from browsing import Browser, entered, token
from services import Served, connected

import eventkit
from eventkit.access import ApiKeys
from eventkit.conformance import proves
from eventkit.http import Access, Keys, Refusal, ServiceSettings, app
from eventkit.http.dashboard.actions import ACTIONS
from eventkit.testing import advance

filled, browser = browsing.filled, browsing.browser


@proves("E13")
def test_dead_tasks_are_requeued_edited_and_deleted(browser: Browser, served: Served, filled: dict[str, Any]) -> None:
    """Actions apply to one dead task, all of an error, or all of a queue."""
    queue = served.kit.queue("emails")
    browser.send(browser.get(f"/dashboard/task?queue=emails&id={filled['dead']}"), "edit", payload='{"to": "edited" }')
    task = served.ask(queue.get(filled["dead"]))
    assert (task.state, task.payload, task.attempt) == ("ready", {"to": "edited"}, 0)
    page = browser.get("/dashboard/dead?queue=emails")
    groups = re.findall(r'name="group" value="(\d+)"', page)
    assert len(set(groups)) == 2
    done = browser.send(page, "requeue", group=groups[0])
    assert "2 tasks are back" in browser.get(done.headers["location"])
    assert served.ask(queue.stats()).dead == 1
    browser.send(browser.get("/dashboard/dead?queue=emails"), "purge", queue="emails")
    assert served.ask(queue.stats()).dead == 0
    audited = [event.payload for event in served.ask(served.kit.stream("eventkit.audit").read())]
    assert [(one["action"], one["by"]) for one in audited] == [
        ("dashboard.edit", "anybody"),
        ("dashboard.requeue", "anybody"),
        ("dashboard.purge", "anybody"),
    ]
    browser.post("/dashboard/act", {"do": "purge", "queue": "emails", "group": groups[0], "csrf": token(served)}, 404)


@proves("E13")
def test_an_edited_payload_is_a_payload(browser: Browser, served: Served, filled: dict[str, Any]) -> None:
    """Invalid JSON or too large a payload is refused, and the dead task is unchanged."""
    page = browser.get(f"/dashboard/task?queue=emails&id={filled['dead']}")
    for text in ("{", '{"a": NaN}', "[" * 100 + "]" * 100, '"' + "x" * 600_000 + '"'):
        browser.send(page, "edit", 422, payload=text)
    assert served.ask(served.kit.queue("emails").get(filled["dead"])).state == "dead"


@proves("E13")
def test_queues_and_schedules_are_paused_and_resumed(browser: Browser, served: Served) -> None:
    for do, paused in (("pause-queue", True), ("resume-queue", False)):
        browser.send(browser.get("/dashboard/queue?name=emails"), do)
        assert served.ask(served.kit.queue("emails").stats()).paused is paused
    for do, paused in (("pause-schedule", True), ("resume-schedule", False)):
        browser.send(browser.get("/dashboard/schedules"), do, schedule="nightly")
        assert served.ask(served.kit.schedules.get("nightly")).paused is paused


@proves("E13")
def test_a_task_that_waits_is_cancelled(browser: Browser, served: Served, filled: dict[str, Any]) -> None:
    [task] = served.ask(served.kit.queue("emails").peek())
    browser.send(browser.get(f"/dashboard/task?queue=emails&id={task.id}"), "cancel")
    assert served.ask(served.kit.queue("emails").get(task.id)) is None


@proves("E13")
def test_a_form_of_another_site_changes_nothing(browser: Browser, served: Served) -> None:
    """A form is refused without the token, with another one, from another origin, or by a rebound host name."""
    browser.get("/")
    good = {"do": "pause-queue", "queue": "emails", "csrf": token(served)}
    browser.post("/dashboard/act", good | {"csrf": "x" * 43}, 403)
    browser.post("/dashboard/act", {key: value for key, value in good.items() if key != "csrf"}, 403)
    browser.post("/dashboard/act", good, 403, origin="http://evil.example")
    browser.post("/dashboard/act", good, 403, **{"sec-fetch-site": "cross-site"})
    browser.post("/dashboard/act", good, 403, origin="http://evil.example", host="evil.example")
    browser.post("/dashboard/act", good | {"do": "drop-everything"}, 422)
    assert served("GET", "/dashboard/act").status_code == 405
    assert served.ask(served.kit.queue("emails").stats()).paused is False
    for cookie in served.client.cookies.jar:
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite", "").lower() == "strict"
    browser.post("/dashboard/act", good)
    assert served.ask(served.kit.queue("emails").stats()).paused is True


@proves("E13")
def test_read_only_is_read_only(served: Served, filled: dict[str, Any]) -> None:
    """No page has a form that changes anything, and a forged one is refused."""
    browser = entered(served, settings=ServiceSettings(read_only=True))
    for path in (
        "/dashboard/queue?name=emails",
        "/dashboard/dead?queue=emails",
        "/dashboard/schedules",
        f"/dashboard/task?queue=emails&id={filled['dead']}",
    ):
        page = browser.get(path)
        assert "/dashboard/act" not in page
        assert "read-only" in page
    for do in ACTIONS:
        browser.post("/dashboard/act", {"do": do, "queue": "emails", "csrf": token(served)}, 403)
    assert served.ask(served.kit.queue("emails").stats()).dead == 4


async def guard(connection: Any, access: Access) -> None:
    """Return two keys: one that may read, and one that may do everything."""
    key = connection.headers.get("authorization", "").removeprefix("Bearer ")
    if key not in ("looks", "does"):
        raise Refusal(401, "unauthorized", "this takes a key")
    if access.scope == "admin" and key != "does":
        raise Refusal(403, "forbidden", "the key may not do this")


@proves("E13")
def test_the_key_permits_reading_or_acting(served: Served, filled: dict[str, Any]) -> None:
    """The service asks for a missing key, hides it from scripts, and accepts it for pages alone."""
    browser = entered(served, guard=guard)
    asked = served("GET", "/dashboard/queue?name=emails")
    assert asked.status_code == 303
    form = browser.get(asked.headers["location"])
    fields = {"csrf": token(served), "next": html.unescape(re.findall(r'name="next" value="(.*?)"', form)[0])}
    assert "this takes a key" in browser.post("/dashboard/login", fields | {"key": "guessed"}, 401).text
    browser.post("/dashboard/login", fields | {"key": "looks", "csrf": "x"}, 403)
    answer = browser.post("/dashboard/login", fields | {"key": "looks"})
    assert answer.headers["location"] == "/dashboard/queue?name=emails"
    assert "/dashboard/act" not in browser.get("/dashboard/queue?name=emails")
    browser.post("/dashboard/act", {"do": "pause-queue", "queue": "emails", "csrf": token(served)}, 403)
    assert served("GET", "/queues").status_code == 401, "the cookie is for pages alone"
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example", "/dashboard/\r\nx: y"):
        answer = browser.post("/dashboard/login", fields | {"key": "does", "next": elsewhere})
        assert answer.headers["location"] == "/"
    browser.send(browser.get("/dashboard/queue?name=emails"), "pause-queue")
    assert served.ask(served.kit.queue("emails").stats()).paused
    browser.post("/dashboard/logout", {"csrf": token(served)})
    assert served("GET", "/").status_code == 303


HOST, ORIGIN = "eventkit.example", "https://eventkit.example"


@pytest.fixture
def signed_in(served: Served, url: str) -> Iterator[Any]:
    """Return a function that signs a browser in by a host name behind a TLS proxy, and gives two services' statuses."""
    others = [served.run(connected(url))]

    def signs_in(key: str) -> Any:
        services = [app(kit, guard=Keys(kit)) for kit in (served.kit, *others)]
        clients = [
            httpx.AsyncClient(transport=httpx.ASGITransport(one, raise_app_exceptions=False), base_url=f"http://{HOST}")
            for one in services
        ]
        jar: dict[str, str] = {}

        def send(number: int, method: str, path: str, **fields: str) -> httpx.Response:
            headers = {"cookie": "; ".join(f"{name}={value}" for name, value in jar.items())}
            headers |= {"origin": ORIGIN, "sec-fetch-site": "same-origin"} if method == "POST" else {}
            given = {"data": {"csrf": jar.get("eventkit_form", ""), **fields}} if method == "POST" else {}
            answer = served.run(clients[number].request(method, path, headers=headers, **given))
            jar.update(answer.cookies)
            return answer

        send(0, "GET", "/dashboard/login")
        answer = send(0, "POST", "/dashboard/login", key=key)
        assert (answer.status_code, answer.headers["location"]) == (303, "/"), answer.text
        send.jar, send.answer = jar, answer  # type: ignore[attr-defined]
        return send

    yield signs_in
    for kit in others:
        served.run(kit.close())


def added(served: Served, *scopes: str) -> Any:
    async def add() -> Any:
        return await ApiKeys(served.kit).add("a test", scopes)

    return served.run(add())


def both(send: Any, seconds: float = 0.0) -> list[int]:
    """Return the answers of both services to the browser after so many seconds."""
    time.sleep(seconds)
    return [send(number, "GET", "/dashboard/queues").status_code for number in (0, 1)]


@proves("E13")
def test_a_browser_has_a_session_and_not_the_key(signed_in: Any, served: Served, tmp_path: Path, url: str) -> None:
    """It works by a host name behind a proxy, in all processes, for a day, and not as a copy."""
    key = added(served, "admin")
    send = signed_in(key)
    [cookie] = [one for one in send.answer.headers.get_list("set-cookie") if one.startswith("eventkit_session=")]
    assert {"Secure", "HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert key[-64:] not in cookie
    assert both(send) == [200, 200]
    done = send(1, "POST", "/dashboard/act", do="pause-queue", queue="emails")
    assert done.status_code == 303
    event = served.ask(served.kit.stream("eventkit.audit").read())[-1]
    assert (event.payload["action"], event.payload["by"]) == ("dashboard.pause-queue", key.id)
    assert send(0, "POST", "/dashboard/act", do="pause-queue", queue="emails", csrf="x" * 43).status_code == 403
    assert "eventkit_session" not in eventkit.copy(url, f"sqlite:///{tmp_path}/copy.db")
    with eventkit.connect(url) as kit:
        advance(kit, 86_500)
    assert both(send, 0.6) == [303, 303]


@proves("E13")
@pytest.mark.parametrize("end", ["revoke", "rotate", "sign out"])
def test_a_session_ends_with_its_key(signed_in: Any, served: Served, end: str) -> None:
    """It ends within a second, in every process; and where the browser signs out."""
    key = added(served, "consume")
    other, send = signed_in(key), signed_in(key)
    assert both(send) == [200, 200]
    if end == "sign out":
        answer = send(0, "POST", "/dashboard/logout")
        assert answer.status_code == 303, answer.text
        assert both(other) == [200, 200]
    else:
        served.run(changed(served, end, key.id))
    assert both(send, 1.0) == [303, 303]


async def changed(served: Served, end: str, id: str) -> None:
    await getattr(ApiKeys(served.kit), end)(id)
