"""The examples, names and links of the documentation are correct.

Every Python and SQL block of the README and of ``docs/`` is executed as it stands, those of one page in order, in one
namespace and in an empty folder.  There are no blocks that only illustrate.  SQL beneath a heading that names SQLite is
for a file, other SQL for Postgres; where Python connects to one on ``localhost``, the suite's stands in for it.  A
block that never ends says ``Ctrl-C`` beside the loop, and the test interrupts it after a moment.

`test_recipes` runs the recipes, which are programs, `test_cli_docs` the commands, and the tests in `spark/` the pages
about Spark; `test_deploying` starts the workers (units, images, manifests).
"""

import gc
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_exports import OTHERS

import eventkit
from eventkit.kit import Kit

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = {"recipes.md", "spark.md"}
MOMENT, PATIENCE = 1.0, 60.0

page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
page_of_blocks = pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ELSEWHERE], ids=lambda page: page.name
)


def blocks(page: Path, *languages: str) -> Iterator[tuple[int, str]]:
    """Return the page's blocks in one of the languages: the line where each begins, and its text."""
    text = page.read_text("utf-8")
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match[1] in languages:
            yield text.count("\n", 0, match.start()) + 2, match[2]


def sql(page: Path, *, sqlite: bool) -> list[str]:
    """Return the page's SQL blocks for one of the databases."""
    lines = page.read_text("utf-8").splitlines()
    return [
        block
        for line, block in blocks(page, "sql")
        if sqlite == ("SQLite" in next(above for above in reversed(lines[:line]) if above.startswith("#")))
    ]


POSTGRES = re.compile(r"postgresql(\+psycopg)?://localhost/shop(\?)?")
"""The database on Postgres in the pages; SQLAlchemy's URL takes none of eventkit's options."""


def on_our_server(block: str, url: str) -> str:
    """Return the block with the suite's database instead of the page's."""
    plain = re.sub(r"[?&]schema=\w+$", "", url).replace("postgresql", "postgresql+psycopg", 1)
    ours = {None: url, "?": f"{url}{'&' if '?' in url else '?'}"}
    return POSTGRES.sub(lambda name: plain if name[1] else ours[name[2]], block)


def paste(page: Path, line: int, block: str, namespace: dict[str, Any]) -> None:
    """Execute a block as a reader does: one that says ``Ctrl-C`` until that is pressed, any other to its end."""
    endless = "Ctrl-C" in block
    done = threading.Event()

    def press() -> None:
        if not done.wait(MOMENT if endless else PATIENCE):
            os.kill(os.getpid(), signal.SIGINT)

    reader = threading.Thread(target=press)
    reader.start()
    try:
        exec(compile("\n" * (line - 1) + block, page, "exec"), namespace)
    except KeyboardInterrupt:
        if not endless:
            pytest.fail(f"{page.name}:{line} never ends: say so with Ctrl-C beside the loop")
    else:
        assert not endless, f"{page.name}:{line} ends by itself: do not say Ctrl-C"
    finally:
        done.set()
        reader.join()


@page_of_blocks
def test_its_python_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The Python blocks of a page run in order without an error."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    try:
        for line, block in blocks(page, "python"):
            if POSTGRES.search(block):
                block = on_our_server(block, request.getfixturevalue("postgres_url"))
            paste(page, line, block, namespace)
    finally:
        for value in namespace.values():
            if isinstance(value, Kit | eventkit.App):
                value.close()
        namespace.clear()
        gc.collect()


@page
def test_its_sqlite_runs(page: Path, tmp_path: Path) -> None:
    """Python's own SQLite library, in a process without eventkit, runs the blocks for SQLite."""
    file = tmp_path / "shop.db"
    eventkit.connect(f"sqlite:///{file}").close()
    script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.stdin.read())"
    blocks = "\n".join(sql(page, sqlite=True))
    subprocess.run([sys.executable, "-c", script, str(file)], input=blocks, text=True, check=True)


@page
def test_its_postgres_runs(page: Path, request: pytest.FixtureRequest) -> None:
    """A plain connection whose search_path lacks eventkit's schema runs the blocks for Postgres."""
    if not (blocks := sql(page, sqlite=False)):
        return
    import psycopg
    from postgres_server import drop_schema

    url = request.getfixturevalue("postgres")
    roles = sorted(set(re.findall(r"\bTO (\w+);", "\n".join(blocks))))
    eventkit.connect(url).close()
    try:
        with psycopg.connect(url, autocommit=True) as driver:
            driver.execute("CREATE SCHEMA page; SET search_path = page")
            for role in roles:
                driver.execute(f"CREATE ROLE {role}")  # type: ignore[arg-type]
            for block in blocks:
                driver.execute(block)  # type: ignore[arg-type]
            for role in roles:
                driver.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")  # type: ignore[arg-type]
    finally:
        for schema in ("page", "eventkit"):
            drop_schema(url, schema)


@page
def test_its_commands_exist(page: Path) -> None:
    """Each make target is in the Makefile, each module can be found, and each extra is declared."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    text = page.read_text("utf-8")
    shell = "\n".join(block for _, block in blocks(page, "sh")) + "\n".join(re.findall(r"`([^`\n]+)`", text))
    for target in re.findall(r"^make ([a-z-]+)", shell, re.MULTILINE):
        assert target in targets, target
    for module in re.findall(r"\bpython -m ([\w.]+)", shell):
        assert importlib.util.find_spec(module), module
    for extra in re.findall(r"eventkit-db\[(\w+)\]", text):
        assert extra in extras, extra


@page
def test_its_blocks_are_of_known_kinds(page: Path) -> None:
    """Every block names its language, so that the tests above see all code; ``text`` is no code."""
    fences = re.findall(r"^\s*```(.*)$", page.read_text("utf-8"), re.MULTILINE)
    assert set(fences[::2]) <= {"python", "sh", "sql", "text", "ini", "yaml", "dockerfile"}
    assert set(fences[1::2]) <= {""}


@page
def test_its_links_lead_somewhere(page: Path) -> None:
    """A link within the project names an existing file and heading."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if not target.startswith("https://"):
            path, _, heading = target.partition("#")
            linked = page.parent / path if path else page
            assert linked.exists(), target
            assert not heading or heading in headings(linked), target


def headings(page: Path) -> set[str]:
    """Return the anchors of the page's headings, as web pages make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_public_name_is_documented() -> None:
    """Every name that can be imported is explained on some page for users."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES if page.name not in ("contract.md", "CHANGELOG.md"))
    assert [name for name in (*eventkit.__all__, *OTHERS) if not re.search(rf"\b{name}\b", text)] == []


def test_every_method_is_in_the_guide() -> None:
    """Every method of a handle has an example or a sentence."""
    guide = (ROOT / "docs" / "guide.md").read_text("utf-8")
    protocols = (
        eventkit.EventKit,
        eventkit.EventStream,
        eventkit.TaskQueue,
        eventkit.NotificationChannel,
        eventkit.Outbox,
        eventkit.Inbox,
        eventkit.Schedules,
    )
    for protocol in protocols:
        for name in vars(protocol):
            if not name.startswith("_"):
                assert re.search(rf"\b{name}\b", guide), f"{protocol.__name__}.{name}"


def test_the_first_block_is_the_whole_idea(tmp_path: Path) -> None:
    """The first block of the README is short, and ends by itself."""
    _, block = next(blocks(ROOT / "README.md", "python"))
    assert len(block.splitlines()) < 15
    ran = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "a mail to ann@example.com\n", "")


INTERRUPTED = """
import signal, sys, eventkit
signal.signal(signal.SIGINT, signal.default_int_handler)
kit = eventkit.connect(sys.argv[1])
print("begun", flush=True)
try:
    for item in kit.{loop}: ...
except {caught}:
    print("caught")
finally:
    print("left", flush=True)
"""


@pytest.mark.parametrize(
    ("loop", "caught", "code"),
    [
        ("queue('q').work()", "ValueError", 130),
        ("stream('t').subscribe('c')", "KeyboardInterrupt", 0),
        ("channel('c').listen()", "ValueError", 130),
    ],
)
def test_an_interrupted_loop_prints_no_traceback(tmp_path: Path, loop: str, caught: str, code: int) -> None:
    """Ctrl-C ends a waiting program with KeyboardInterrupt."""
    command = [sys.executable, "-c", INTERRUPTED.format(loop=loop, caught=caught), f"sqlite:///{tmp_path}/shop.db"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        time.sleep(0.3)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert (program.returncode, err, out.splitlines()) == (code, "", ["caught", "left"] if code == 0 else ["left"])


def test_the_readme_keeps_raw_queues_and_tasks_apart() -> None:
    """A plain payload in a queue of declared tasks would be a dead task."""
    text = (ROOT / "README.md").read_text("utf-8")
    assert not set(re.findall(r'kit\.queue\("(\w+)"', text)) & {"default", *re.findall(r'task\(queue="(\w+)"', text)}


def test_every_url_option_is_documented() -> None:
    """The URL options are those in the README's table, and for Postgres those in the guide's."""
    from eventkit_postgres import address as postgres
    from eventkit_sqlite import address as sqlite

    listed = {
        page: set(re.findall(r"^\| `\?(\w+)=", (ROOT / page).read_text("utf-8"), re.MULTILINE))
        for page in ("README.md", "docs/guide.md")
    }
    for page, module in (("README.md", sqlite), ("docs/guide.md", postgres)):
        assert module.__doc__
        assert listed[page] == set(re.findall(r"^    \?(\w+)=", module.__doc__, re.MULTILINE))
    refusal = str(pytest.raises(ValueError, sqlite.parse, "sqlite:///x.db?nonsense=1").value)
    known = refusal.partition("the options are ")[2]
    assert listed["README.md"] == set(known.split(", "))
