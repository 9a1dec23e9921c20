"""The pages as the service sends them: their content, and their protection."""

import html
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import browsing
import httpx
from browsing import Browser
from pages import BIDI, HOSTILE, QUOTES, SCRIPT
from services import Served

import eventkit
from eventkit.conformance import proves
from eventkit.http import app

filled, browser = browsing.filled, browsing.browser

LINK = re.compile(r'href="(/[^"]*)"')


class Found(HTMLParser):
    """The markup that a browser finds in a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.scripts = set[str](), set[str](), 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Record a tag."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.scripts += tag == "script"


@proves("E11")
def test_every_page_is_there_without_a_script(browser: Browser, filled: dict[str, Any]) -> None:
    """Each link from the first page leads to a page, and together they show all rows."""
    seen: dict[str, str] = {}
    todo = ["/"]
    while todo:
        path = todo.pop()
        # Three pages of a kind with the same queries are enough.
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
def test_the_page_of_a_task_shows_its_steps(browser: Browser, filled: dict[str, Any]) -> None:
    """A finished task is found too."""
    page = browser.get(f"/dashboard/task?queue=emails&id={filled['dead']}")
    steps = re.findall(r'<span class="what">(\w+)</span>', page)
    assert steps == ["enqueued", "started", "failed", "dead"]
    browser.send(page, "purge", id=filled["dead"])
    page = browser.get(f"/dashboard/task?queue=emails&id={filled['dead']}")
    assert re.findall(r'<span class="what">(\w+)</span>', page)[-1] == "purged"
    assert "gone" in page
    browser.get("/dashboard/task?queue=emails&id=123456789", 404)


@proves("E11", "S16")
def test_the_page_of_a_stream_shows_its_groups(browser: Browser, url: str) -> None:
    """It lists the members and the partitions, with lag and parked events."""
    assert "Consumer groups" not in browser.get("/dashboard/stream?stream=sales")
    with eventkit.connect(url) as kit:
        kit.stream("sales").publish_many([eventkit.NewEvent(n, key="one") for n in range(12)])
        with kit.stream("sales").join("<b>billing", partitions=4) as member:
            member.retry(member.next(timeout=30), delay=1000)
            page = browser.get("/dashboard/stream?stream=sales")
    assert "&lt;b&gt;billing" in page
    assert "11 events behind, 1 parked" in " ".join(page.split())
    assert re.findall(r"<td>(open|full|stopped)</td>", page) == ["open"] * 4


@proves("E11")
def test_tasks_and_events_are_found(browser: Browser, filled: dict[str, Any]) -> None:
    """Tasks are found by state, key and id, events by key, time and offset; paging shows each once."""
    page = browser.get("/dashboard/queue?name=emails&key=key+30")
    assert re.findall(r"user (\d+)", page) == ["30"]
    assert "user 0" in browser.get(f"/dashboard/queue?name=emails&key={filled['dead']}")
    first, second = (browser.get(f"/dashboard/queue?name=emails&skip={skip}") for skip in (0, 50))
    assert re.findall(r"user (\d+)", first + second) == [str(number) for number in range(6, 60)]
    offsets = filled["stream"]
    page = browser.get("/dashboard/stream?stream=orders&key=customer+3")
    assert [int(found) for found in re.findall(r"&#34;order&#34;:(\d+)", page)] == list(range(66, 0, -7))
    page = browser.get(f"/dashboard/stream?stream=orders&before={offsets[3]}")
    assert [int(found) for found in re.findall(r"&#34;order&#34;:(\d+)", page)] == [2, 1, 0]
    page = browser.get("/dashboard/stream?stream=orders&at=2001-01-01T00:00")
    assert [int(found) for found in re.findall(r"&#34;order&#34;:(\d+)", page)] == list(range(49, -1, -1))
    browser.get("/dashboard/stream?stream=orders&at=yesterday", 422)


@proves("E12")
def test_what_others_wrote_is_text(browser: Browser, filled: dict[str, Any]) -> None:
    """No page has markup from stored texts, nor hidden characters or ones that reverse text."""
    name = HOSTILE[:255]
    for path in (
        "/",
        "/dashboard/queues",
        f"/dashboard/queue?{urlencode({'name': name})}",
        "/dashboard/dead",
        f"/dashboard/queue?{urlencode({'name': name, 'key': HOSTILE})}",
        "/dashboard/dead?queue=emails",
        "/dashboard/streams",
        f"/dashboard/stream?{urlencode({'stream': name, 'key': HOSTILE})}",
        "/dashboard/schedules",
        "/dashboard/workers",
        "/dashboard/locks",
        "/?said=paused&what=" + urlencode({"": HOSTILE})[1:],
    ):
        page = browser.get(path)
        for raw in (SCRIPT, QUOTES, "onerror=document.title='owned'>"):
            assert raw not in page, (path, raw)
        # A form sends such text back unchanged, in a field that is not displayed.
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
    """A payload of half a megabyte is shortened, in the list and on its own page."""
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
    """The policy lets a browser run only the service's script and send no data elsewhere; no page names a host."""
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


@proves("E11")
def test_pages_work_where_the_application_is_mounted(served: Served, filled: dict[str, Any]) -> None:
    """Each link and form stays below the path of the mounted application."""
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
