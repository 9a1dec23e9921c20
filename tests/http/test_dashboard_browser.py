"""The dashboard in a real browser: live updates, keyboard use, and both colour schemes.

Chromium is the system's.  Without it, the tests are skipped with that reason.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import HOSTILE, fill
from services import Started

import eventkit
from eventkit.conformance import proves

SWITCHES = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture
def chromium() -> Iterator[Any]:
    """Return a browser for one test: its driver has an event loop, which would disturb others."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium on this machine: install the system's chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=SWITCHES.split())
        yield browser
        browser.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database of either kind; other tests prove that pages are the same on both."""
    return (
        f"sqlite:///{tmp_path}/pages.db" if request.param == "sqlite" else str(request.getfixturevalue("emptied_url"))
    )


@pytest.fixture
def filled(url: str) -> dict[str, Any]:
    with eventkit.connect(url) as kit:
        return fill(kit)


@pytest.fixture
def served(filled: dict[str, Any], url: str, tmp_path: Path) -> Iterator[Started]:
    service = Started(url, tmp_path)
    yield service
    assert service.stop() == 0


@proves("E11", "E12", "E13")
def test_the_dashboard_in_a_browser(chromium: Any, served: Started, filled: dict[str, Any], url: str) -> None:
    """Changes appear by themselves, without an error in the browser's console, and typed text stays."""
    errors: list[str] = []
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    context.on("request", lambda asked: asked.url.startswith(served.address) or errors.append(asked.url))
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))

    page.goto(served.address)
    tile = page.locator(".tile.dead .value")
    assert tile.inner_text() == "4"
    with eventkit.connect(url) as kit:
        # A commit of another process appears on the page by itself.
        queue = kit.queue("emails")
        [task] = queue.claim("other")
        queue.fail(task, "another")
        page.locator(".tile.dead .value", has_text="5").wait_for()

        # By keyboard alone: skip to the content, along the pages, to a dead task's kind.
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Dead tasks").press("Enter")
        page.get_by_role("link", name="ConnectionRefused: by mail.internal").press("Enter")
        page.wait_for_url("**group=**")

        # Typed text survives an update.
        page.goto(f"{served.address}/dashboard/task?queue=emails&id={filled['dead']}")
        page.get_by_text("Edit and requeue").click()
        box = page.get_by_label("The payload, as JSON")
        box.fill('{"to": "typed"}')
        queue.enqueue("more")
        page.wait_for_timeout(2500)
        assert box.input_value() == '{"to": "typed"}'
        page.get_by_role("button", name="Requeue with this payload").click()
        page.get_by_role("status").get_by_text("back in the queue, with the new payload").wait_for()
        info = queue.get(filled["dead"])
        assert info is not None
        assert (info.state, info.payload) == ("ready", {"to": "typed"})

        # A destructive action asks for confirmation.
        page.goto(f"{served.address}/dashboard/dead?queue=emails")
        page.get_by_text("Delete all…").press("Enter")
        assert queue.stats().dead == 4
        page.get_by_role("button", name="Delete all", exact=True).press("Enter")
        page.get_by_text("No dead tasks").wait_for()
        assert queue.stats().dead == 0

        # Updates can be stopped, and started again.
        page.goto(f"{served.address}/dashboard/queues")
        button = page.get_by_role("button", name="Live")
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        kit.queue("new one").enqueue(1)
        page.wait_for_timeout(2500)
        assert page.get_by_role("link", name="new one").count() == 0
        button.click()
        page.get_by_role("link", name="new one").wait_for()
    assert errors == []
    context.close()


@proves("E11", "E12")
def test_every_page_in_either_light_and_on_a_telephone(chromium: Any, served: Started, filled: dict[str, Any]) -> None:
    """Nothing overflows, all text has enough contrast, and every control has a name."""
    paths = (
        "/",
        "/dashboard/queues",
        "/dashboard/queue?name=emails",
        "/dashboard/dead",
        "/dashboard/streams",
        "/dashboard/stream?stream=orders",
        "/dashboard/schedules",
        "/dashboard/workers",
        "/dashboard/locks",
        f"/dashboard/task?queue=emails&id={filled['dead']}",
    )
    for scheme, width in (("light", 1280), ("dark", 390)):
        context = chromium.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page = context.new_page()
        for path in paths:
            page.goto(served.address + path, wait_until="domcontentloaded")
            assert page.title() != "owned"
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, scheme)
            assert page.evaluate(CONTRAST) == [], (path, scheme)
            assert page.evaluate(NAMELESS) == [], path
            assert page.locator("h1").count() == 1, path
        context.close()
    assert HOSTILE  # The text is on these pages, and its script would have changed the title above.


CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const over = (colors) => {
        canvas.clearRect(0, 0, 1, 1);
        for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = (color) => {
        const [r, g, b] = color.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    for (const element of document.querySelectorAll("main *, header *")) {
        const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!text || !element.checkVisibility() || element.closest(".unseen, .skip, meter, progress")) continue;
        const grounds = [];
        for (let one = element; one; one = one.parentElement) grounds.unshift(getComputedStyle(one).backgroundColor);
        const ground = over(grounds), ink = over([...grounds, getComputedStyle(element).color]);
        const [low, high] = [light(ground), light(ink)].sort((a, b) => a - b);
        if ((high + 0.05) / (low + 0.05) < 4.5) found.push(element.outerHTML.slice(0, 80));
    }
    return found;
}"""
"""Texts with too little contrast to their background: less than 4.5 to 1."""

NAMELESS = """() => [...document.querySelectorAll("a, button, input:not([type=hidden]), textarea, svg[role=img]")]
    .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length || one.hidden))
    .map((one) => one.outerHTML.slice(0, 80))"""
"""Controls and pictures without an accessible name."""
