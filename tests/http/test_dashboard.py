"""The pages, as the service sends them: what they show, what they let nobody do, and what they change."""

import html
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from pages import BIDI, HOSTILE, QUOTES, SCRIPT, fill
from services import Served

import eventkit
from eventkit.conformance import proves
from eventkit.http import Access, Refusal, ServiceSettings, app
from eventkit.http.dashboard.actions import ACTIONS

LINK = re.compile(r'href="(/[^"]*)"')


class Found(HTMLParser):
    """What a browser takes for markup in a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.scripts = set[str](), set[str](), 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Note it."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.scripts += tag == "script"


class Browser:
    """Follows links and sends forms as a browser without a script does, with its cookies and headers."""

    def __init__(self, served: Served, base: str = "http://127.0.0.1") -> None:
        self._served = served
        self._base = base
        served.client.base_url = httpx.URL(base)

    def get(self, path: str, status: int = 200) -> str:
        """The page at *path*."""
        answer = self._served("GET", path)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.text

    def send(self, page: str, do: str, status: int = 303, **fields: Any) -> httpx.Response:
        """Send a form that *page* has, for *do*; *fields* are what is typed, or what tells it from others."""
        for form in re.findall(r'<form method="post" action="/dashboard/act".*?</form>', page, re.DOTALL):
            hidden = {
                html.unescape(name): html.unescape(value)
                for name, value in re.findall(r'<input type="hidden" name="(.*?)" value="(.*?)">', form, re.DOTALL)
            }
            typed = set(re.findall(r'<textarea.*?name="(\w+)"', form))
            if hidden["do"] == do and all(
                name in typed or hidden.get(name) == str(value) for name, value in fields.items()
            ):
                return self.post("/dashboard/act", hidden | fields, status)
        raise AssertionError(f"the page has no form for {do} with {fields}")

    def post(self, path: str, fields: dict[str, Any], status: int = 303, **headers: str) -> httpx.Response:
        """Send a form."""
        given = {"origin": self._base, "sec-fetch-site": "same-origin"} | headers
        answer = self._served("POST", path, data=fields, headers=given)
        assert answer.status_code == status, (path, fields, answer.status_code, answer.text)
        return answer


@pytest.fixture
def filled(url: str) -> dict[str, Any]:
    with eventkit.connect(url) as kit:
        return fill(kit)


@pytest.fixture
def browser(filled: dict[str, Any], served: Served) -> Browser:
    return Browser(served)


@proves("E11")
def test_every_page_is_there_without_a_script(browser: Browser, filled: dict[str, Any]) -> None:
    """From the first page on each link leads to a page, and together they show all that there is."""
    seen: dict[str, str] = {}
    todo = ["/"]
    while todo:
        path = todo.pop()
        # Of a kind of page with the same queries, three are enough.
        kind = (urlsplit(path).path, *sorted(parse_qs(urlsplit(path).query)))
        if (
            path in seen
            or sum(1 for known in seen if (urlsplit(known).path, *sorted(parse_qs(urlsplit(known).query))) == kind) >= 3
        ):
            continue
        seen[path] = browser.get(path) if "/static/" not in path else ""
        todo += [html.unescape(found) for found in LINK.findall(seen[path])]
    everything = "\n".join(seen.values())
    for text in (
        "user 59",
        "key 12",
        "ConnectionRefused: by mail.internal",
        "warehouse",
        "customer 3",
        "0 3 * * *",
        "Europe/Berlin",
        "mailer",
        "7 of 20",
        "window of 1.0 h",
    ):
        assert text in everything, text
    kinds = {urlsplit(path).path.removeprefix("/dashboard/") for path in seen}
    assert kinds >= {
        "/",
        "queues",
        "queue",
        "task",
        "dead",
        "streams",
        "stream",
        "event",
        "schedules",
        "workers",
        "locks",
    }


@proves("E11")
def test_a_task_tells_what_it_went_through(browser: Browser, filled: dict[str, Any]) -> None:
    """Also when it is not in the queue any more."""
    page = browser.get(f"/dashboard/task?queue=emails&id={filled['dead']}")
    steps = re.findall(r'<span class="what">(\w+)</span>', page)
    assert steps == ["enqueued", "started", "failed", "dead"]
    browser.send(page, "purge", id=filled["dead"])
    page = browser.get(f"/dashboard/task?queue=emails&id={filled['dead']}")
    assert re.findall(r'<span class="what">(\w+)</span>', page)[-1] == "purged"
    assert "gone" in page
    browser.get("/dashboard/task?queue=emails&id=123456789", 404)


@proves("E11")
def test_tasks_and_events_are_found(browser: Browser, filled: dict[str, Any]) -> None:
    """By state, key and id; by key, time and offset; and page after page each of them comes once."""
    page = browser.get("/dashboard/queue?name=emails&key=key+30")
    assert re.findall(r"user (\d+)", page) == ["30"]
    assert "user 0" in browser.get(f"/dashboard/queue?name=emails&key={filled['dead']}")
    first, second = (browser.get(f"/dashboard/queue?name=emails&skip={skip}") for skip in (0, 50))
    assert re.findall(r"user (\d+)", first + second) == [str(number) for number in range(6, 60)]
    offsets = filled["stream"]
    page = browser.get("/dashboard/stream?topic=orders&key=customer+3")
    assert [int(found) for found in re.findall(r"&#34;order&#34;:(\d+)", page)] == list(range(66, 0, -7))
    page = browser.get(f"/dashboard/stream?topic=orders&before={offsets[3]}")
    assert [int(found) for found in re.findall(r"&#34;order&#34;:(\d+)", page)] == [2, 1, 0]
    page = browser.get("/dashboard/stream?topic=orders&at=2001-01-01T00:00")
    assert [int(found) for found in re.findall(r"&#34;order&#34;:(\d+)", page)] == list(range(49, -1, -1))
    browser.get("/dashboard/stream?topic=orders&at=yesterday", 422)


@proves("E12")
def test_what_others_wrote_is_text(browser: Browser, filled: dict[str, Any]) -> None:
    """In no page stands anything that a browser would take for markup, nor what is hidden or turns text around."""
    name = HOSTILE[:255]
    for path in (
        "/",
        "/dashboard/queues",
        f"/dashboard/queue?{urlencode({'name': name})}",
        "/dashboard/dead",
        f"/dashboard/queue?{urlencode({'name': name, 'key': HOSTILE})}",
        "/dashboard/dead?queue=emails",
        "/dashboard/streams",
        f"/dashboard/stream?{urlencode({'topic': name, 'key': HOSTILE})}",
        "/dashboard/schedules",
        "/dashboard/workers",
        "/dashboard/locks",
        "/?said=paused&what=" + urlencode({"": HOSTILE})[1:],
    ):
        page = browser.get(path)
        for raw in (SCRIPT, QUOTES, "onerror=document.title='owned'>"):
            assert raw not in page, (path, raw)
        # What a form sends back is as it was, and is not shown.
        for raw in BIDI.replace("exe.txt", ""):
            assert raw not in re.sub(r'value="[^"]*"', "", page), (path, raw)
        assert "&lt;script&gt;" in page, path
        assert "⟨U+202E⟩" in page, path
        assert "{{7*7}}" in page, path
        found = Found(page)
        assert not found.tags & {"img", "b", "iframe", "style", "object", "base"}, path
        assert found.scripts == 1, path
        assert not [name for name in found.attributes if name.startswith("on") or name == "style"], path


@proves("E12")
def test_what_is_long_makes_no_long_page(browser: Browser) -> None:
    """Half a megabyte of payload is shown by its beginning, in the list and on its own page."""
    name = urlencode({"name": HOSTILE[:255]})
    page = browser.get(f"/dashboard/queue?{name}")
    assert len(page) < 60_000
    assert "500,002 characters" in page
    [id] = re.findall(r"id=(\d+)\"[^>]*>\d+</a></td>", page) or re.findall(r"id=(\d+)", page)[-1:]
    page = browser.get(f"/dashboard/task?{urlencode({'queue': HOSTILE[:255], 'id': id})}")
    assert "The first 65,536 of" in page
    assert len(page) < 200_000


@proves("E12")
def test_nothing_is_loaded_from_elsewhere(served: Served, filled: dict[str, Any]) -> None:
    """The policy lets a browser run our script alone, and send nothing elsewhere; and no page names another host."""
    answer = served("GET", "/", headers={"host": "127.0.0.1"})
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
    assert set(policy.values()) == {"'self'"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    for path in LINK.findall(answer.text) + re.findall(r'src="([^"]+)"', answer.text):
        assert path.startswith("/")
    for path in re.findall(r'(?:src|href)="(/dashboard/static/[^"]+)"', answer.text):
        file = served("GET", path)
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
        assert not re.search(r"https?://(?!www\.w3\.org)|@import|url\(|\beval\b", file.text), path
    assert served("GET", "/dashboard/static/..%2fviewing.py").status_code == 404


@proves("E13")
def test_dead_letters_are_requeued_edited_and_deleted(browser: Browser, served: Served, filled: dict[str, Any]) -> None:
    """One, all of an error, or all of a queue."""
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
    told = [event.payload for event in served.ask(served.kit.stream("eventkit.audit").read())]
    assert [(one["action"], one["by"]) for one in told] == [
        ("dashboard.edit", "anybody"),
        ("dashboard.requeue", "anybody"),
        ("dashboard.purge", "anybody"),
    ]
    browser.post("/dashboard/act", {"do": "purge", "queue": "emails", "group": groups[0], "csrf": token(served)}, 404)


@proves("E13")
def test_an_edited_payload_is_a_payload(browser: Browser, served: Served, filled: dict[str, Any]) -> None:
    """What is not JSON, or too large, is refused, and the letter stays as it was."""
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


def token(served: Served) -> str:
    """What our forms bring along."""
    return str(served.client.cookies["eventkit_form"])


@proves("E13")
def test_a_form_of_another_site_changes_nothing(browser: Browser, served: Served) -> None:
    """Without the token, with another one, from another origin, or by a name that was made to mean this machine."""
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


def entered(served: Served, **settings: Any) -> Browser:
    """A browser of another application on the same kit."""
    transport = httpx.ASGITransport(app(served.kit, **settings), raise_app_exceptions=False)
    served.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
    return Browser(served)


@proves("E13")
def test_read_only_is_read_only(served: Served, filled: dict[str, Any]) -> None:
    """No page has a form that changes anything, and one that is sent all the same is refused."""
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
    """Two keys: one that looks, and one that does everything."""
    key = connection.headers.get("authorization", "").removeprefix("Bearer ")
    if key not in ("looks", "does"):
        raise Refusal(401, "unauthorized", "this takes a key")
    if access.scope == "admin" and key != "does":
        raise Refusal(403, "forbidden", "the key may not do this")


@proves("E13")
def test_the_key_says_who_may_look_and_who_may_act(served: Served, filled: dict[str, Any]) -> None:
    """Asked for where it is missing, kept out of reach of scripts, and good for pages alone."""
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


@proves("E11")
def test_pages_work_where_the_application_is_mounted(served: Served, filled: dict[str, Any]) -> None:
    """Each link and form stays below the place where somebody has mounted it."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    mounted = Starlette(routes=[Mount("/ops", app(served.kit))])
    served.client = httpx.AsyncClient(transport=httpx.ASGITransport(mounted), base_url="http://127.0.0.1")
    page = served("GET", "/ops/").text
    links = LINK.findall(page)
    assert links
    assert all(link.startswith("/ops/") for link in links)
    for link in links:
        assert served("GET", html.unescape(link)).status_code == 200, link
    page = served("GET", "/ops/dashboard/queue?name=emails").text
    assert 'action="/ops/dashboard/act"' in page
