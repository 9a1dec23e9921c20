"""Commands that run until they are stopped: their output, logs and signals."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import command_line
import pytest
from command_line import EVENTKIT, environment, process
from working import PATIENCE, until

import eventkit
from eventkit.conformance.clauses import proves

folder = command_line.folder


@pytest.mark.parametrize("command", [("stream", "tail", "t"), ("channel", "listen", "t")])
def test_what_is_followed_comes_at_once_and_ends_with_an_interrupt(folder: Path, command: tuple[str, ...]) -> None:
    with (
        eventkit.connect("sqlite:///shop.db") as kit,
        subprocess.Popen(
            [*EVENTKIT, *command, "--json", "--url", "sqlite:///shop.db"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as follower,
    ):
        assert follower.stdout is not None
        assert follower.stderr is not None
        deadline = time.monotonic() + PATIENCE
        while not select.select([follower.stdout], [], [], 0.2)[0]:
            assert time.monotonic() < deadline
            kit.stream("t").publish({"n": 1})
            kit.channel("t").notify({"n": 1})
        assert json.loads(follower.stdout.readline())["payload"] == {"n": 1}
        follower.send_signal(signal.SIGINT)
        assert follower.wait(PATIENCE) == 0
        assert follower.stderr.read() == ""


def test_tail_begins_with_the_newest_and_goes_on_for_a_consumer(folder: Path) -> None:
    with eventkit.connect("sqlite:///shop.db") as kit:
        for n in range(300):
            kit.stream("t").publish(n)
            kit.stream("other").publish(n)
        kit.stream("t").save_offset("search", kit.stream("t").read(0, 298)[-1].offset)
    for arguments, expected in ((("-n", "3"), [297, 298, 299]), (("--consumer", "search"), [298, 299])):
        with subprocess.Popen(
            [*EVENTKIT, "stream", "tail", "t", *arguments, "--json", "--url", "sqlite:///shop.db"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as follower:
            assert follower.stdout is not None
            assert [json.loads(follower.stdout.readline())["payload"] for _ in expected] == expected
            if "--consumer" in arguments:
                with eventkit.connect("sqlite:///shop.db") as kit:
                    until(lambda: kit.stream("t").consumers()[0].lag == 0)
            follower.send_signal(signal.SIGINT)
            assert follower.wait(PATIENCE) == 0


def test_stats_are_watched_in_a_terminal(folder: Path) -> None:
    """The display follows the queue; an interrupt restores the terminal, with the last state on it."""
    ours, theirs = pty.openpty()
    with eventkit.connect("sqlite:///shop.db") as kit:
        kit.queue("jobs").enqueue_many([1] * 41)
        watcher = subprocess.Popen(
            [*EVENTKIT, "stats", "--watch", "--every", "0.1", "--url", "sqlite:///shop.db"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="xterm"),
            start_new_session=True,
        )
        os.close(theirs)
        seen = _until(ours, "41")
        kit.queue("jobs").enqueue(1)
        seen += _until(ours, "42")
        watcher.send_signal(signal.SIGINT)
        seen += _rest(ours)
        assert watcher.wait(PATIENCE) == 0
    os.close(ours)
    assert "Traceback" not in seen
    assert "42" in seen[seen.rindex("\x1b[?1049l") :]


def _until(terminal: int, word: str) -> str:
    seen = ""
    while word not in seen:
        assert select.select([terminal], [], [], PATIENCE)[0], seen
        seen += os.read(terminal, 65536).decode()
    return seen


def _rest(terminal: int) -> str:
    seen = ""
    try:
        while data := os.read(terminal, 65536):
            seen += data.decode()
    except OSError:
        pass  # The other side is closed.
    return seen


def test_a_worker_runs_an_app_until_it_is_stopped(folder: Path) -> None:
    (folder / "shop.py").write_text(
        "import eventkit\n"
        "app = eventkit.App('sqlite:///shop.db')\n"
        "@app.task(queue='jobs')\n"
        "def double(n: int) -> int:\n"
        "    return 2 * n\n",
        "utf-8",
    )
    (folder / "eventkit.toml").write_text("[worker]\nconcurrency = 3\n", "utf-8")
    checked = json.loads(process("check", "shop:app", "--json").stdout)
    assert (len(checked["tasks"]), checked["queues"]) == (1, ["jobs"])
    with eventkit.connect("sqlite:///shop.db") as kit:
        made = kit.queue("jobs").enqueue({"task": checked["tasks"][0], "args": {"n": 21}})
        with subprocess.Popen(
            [*EVENTKIT, "worker", "shop:app", "--queue", "jobs=2"], stderr=subprocess.PIPE, text=True, env=environment()
        ) as worker:
            assert kit.results.wait(made.id, PATIENCE) == 42
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
            assert worker.stderr is not None
            assert "Traceback" not in worker.stderr.read()


@proves("A1", "L2")
@pytest.mark.parametrize("url", [None, "sqlite:///shop.db"])
def test_a_worker_runs_an_async_app(folder: Path, url: str | None) -> None:
    """It uses the app's URL, or the command's; without both, the error says how to give one."""
    (folder / "shop.py").write_text(
        f"import eventkit\napp = eventkit.AsyncApp({url!r})\n"
        "@app.task\nasync def outer(n: int) -> int:\n    return (await inner.enqueue(n)).id\n"
        "@app.task\nasync def inner(n: int) -> int:\n    return 2 * n\n",
        "utf-8",
    )
    command = [*EVENTKIT, "worker", "shop:app", *(() if url else ("--url", "sqlite:///shop.db"))]
    with eventkit.connect("sqlite:///shop.db") as kit:
        made = kit.queue("default").enqueue({"task": "outer", "args": {"n": 21}})
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as worker:
            assert kit.results.wait(kit.results.wait(made.id, PATIENCE), PATIENCE) == 42
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
    if url is None:
        ran = process("worker", "shop:app")
        assert ran.returncode == 2
        assert ran.stderr.startswith("eventkit: no database: pass --url")


@proves("L1")
def test_a_queue_that_there_is_not_is_refused(folder: Path) -> None:
    """Commands that use it or show it refuse it; a worker accepts queues of its app or of the database."""
    (folder / "shop.py").write_text(
        "import eventkit\napp = eventkit.App('sqlite:///shop.db')\n@app.task(queue='jobs')\ndef work() -> None: ...\n",
        "utf-8",
    )
    with eventkit.connect("sqlite:///shop.db") as kit:
        kit.queue("others").enqueue(1)
    for command in (
        ("worker", "shop:app", "-q", "job"),
        ("queue", "show", "job"),
        ("stats", "job"),
        ("stats", "others", "job"),
    ):
        ran = process(*command, *(() if command[0] == "worker" else ("--url", "sqlite:///shop.db")))
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "queue 'job'" in ran.stderr
        assert "eventkit queue list" in ran.stderr
    assert process("stats", "others", "--url", "sqlite:///shop.db").returncode == 0
    with subprocess.Popen(
        [*EVENTKIT, "worker", "shop:app", "-q", "jobs", "-q", "others"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as worker:
        assert worker.stderr is not None
        assert "has begun: queues jobs, others" in worker.stderr.readline()
        worker.terminate()


@proves("J5")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stops_at_a_signal_before_it_has_begun(folder: Path, number: int) -> None:
    """The first process of a container would otherwise ignore the signal, and start."""
    (folder / "shop.py").write_text(
        "import pathlib, time\npathlib.Path('imported').touch()\ntime.sleep(1000)\n", "utf-8"
    )
    with subprocess.Popen(
        [*EVENTKIT, "worker", "shop:app"], stderr=subprocess.PIPE, text=True, env=environment()
    ) as worker:
        until((folder / "imported").exists)
        worker.send_signal(number)
        assert worker.wait(PATIENCE) == 0
        assert worker.stderr is not None
        assert worker.stderr.read() == ""


@proves("L1")
def test_a_worker_logs_objects(folder: Path) -> None:
    """Each record has the fields of the task and the error in one piece, and libraries log nothing."""
    (folder / "shop.py").write_text(
        "import eventkit\n"
        "app = eventkit.App('sqlite:///shop.db')\n"
        "@app.task(max_attempts=1)\n"
        "def fail() -> None:\n"
        "    raise ValueError('on purpose')\n",
        "utf-8",
    )
    with (
        eventkit.connect("sqlite:///shop.db") as kit,
        subprocess.Popen(
            [*EVENTKIT, "worker", "shop:app", "--json"], stdout=subprocess.PIPE, text=True, env=environment()
        ) as worker,
    ):
        made = kit.queue("default").enqueue({"task": "fail"})
        with pytest.raises(eventkit.TaskFailed):
            kit.results.wait(made.id, PATIENCE)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
        assert worker.stdout is not None
        said = [json.loads(line) for line in worker.stdout]
    assert {one["logger"] for one in said} == {"eventkit.worker"}
    [failure] = [one for one in said if one.get("task_id") == made.id]
    assert all(one["time"].endswith("+00:00") for one in said)
    assert (failure["level"], failure["task_name"], failure["queue"], failure["attempt"]) == (
        "error",
        "fail",
        "default",
        1,
    )
    assert "ValueError: on purpose" in failure["message"]


@proves("L2")
@pytest.mark.parametrize("setting", ["concurrency", "db-retry-max-ms"])
def test_a_workers_option_beats_the_environment_and_that_the_file(folder: Path, setting: str) -> None:
    """Each of the values is out of range, so the error shows which of them was used."""
    key = setting.replace("-", "_")
    (folder / "shop.py").write_text("import eventkit\napp = eventkit.App('sqlite:///shop.db')\n", "utf-8")
    (folder / "eventkit.toml").write_text(f"[worker]\n{key} = -1\n", "utf-8")

    def refused(*arguments: str, **given: str) -> str:
        ran = process("worker", "shop:app", *arguments, env=environment(**given))
        assert ran.returncode == 2, ran
        return ran.stderr

    said = {f"EVENTKIT_{key.upper()}": "-2"}
    assert "not -1" in refused()
    assert "not -2" in refused(**said)
    assert "not -3" in refused(f"--{setting}=-3", **said)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["shop"], "MODULE:APP"),
        (["nowhere:app"], "no module 'nowhere'"),
        (["shop:nothing"], "use app"),
        (["broken:app"], "broken.py, line 2)"),
        (["shop:app", "--concurrency", "0"], "concurrency"),
        (["shop:app", "--queue", "jobs=x"], "not a weight"),
    ],
)
def test_a_worker_that_cannot_start_says_why(folder: Path, arguments: list[str], word: str) -> None:
    (folder / "shop.py").write_text("import eventkit\napp = eventkit.App('sqlite:///shop.db')\n", "utf-8")
    (folder / "broken.py").write_text("import eventkit\napp = eventkit.Apq()\n", "utf-8")
    ran = process("worker", *arguments)
    [line] = ran.stderr.splitlines()
    assert (ran.returncode, word in line) == (2, True), line


def test_a_scheduler_fires_until_it_is_stopped(folder: Path) -> None:
    with eventkit.connect("sqlite:///shop.db") as kit:
        kit.schedules.add("often", "@every 1s", "jobs")
        with subprocess.Popen(
            [*EVENTKIT, "scheduler", "--url", "sqlite:///shop.db"], stderr=subprocess.PIPE, text=True, env=environment()
        ) as scheduler:
            assert kit.queue("jobs").claim("test", wait=PATIENCE)
            scheduler.send_signal(signal.SIGTERM)
            assert scheduler.wait(PATIENCE) == 0
            assert scheduler.stderr is not None
            assert "Traceback" not in scheduler.stderr.read()


STUBBORN = """
import asyncio, sys
import eventkit

app = eventkit.App("sqlite:///shop.db")

async def go_on():
    print("begun", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("ignored", flush=True)

@app.task
async def stubborn():
    await go_on()

@app.task
async def leaves_another():
    asyncio.create_task(go_on(), name="left behind")

@app.subscriber("orders", consumer="stubborn")
async def follow(event: eventkit.Event):
    await go_on()
"""


@proves("J5")
@pytest.mark.parametrize(
    ("what", "named"),
    [("stubborn", "stubborn: task 1"), ("follow", "subscriber follow"), ("leaves_another", "left behind")],
)
def test_a_worker_ends_although_a_function_does_not(folder: Path, what: str, named: str) -> None:
    """It ends after the shutdown timeout, with exit code 1 and a line that names the function."""
    Path("stubborn.py").write_text(STUBBORN, "utf-8")
    with (
        eventkit.connect("sqlite:///shop.db") as kit,
        stubborn_worker(what, kit, "--shutdown-timeout", "0.1") as worker,
    ):
        worker.send_signal(signal.SIGTERM)
        out, log = worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 1
        assert "ignored" in out
        assert f"{named} does not end although it was cancelled" in log
        if what == "stubborn":
            [info] = kit.queue("default").tasks()
            assert (info.state, info.attempt) == ("running", 1)


@proves("J5")
def test_a_second_signal_ends_a_worker_whose_function_does_not(folder: Path) -> None:
    Path("stubborn.py").write_text(STUBBORN, "utf-8")
    with (
        eventkit.connect("sqlite:///shop.db") as kit,
        stubborn_worker("stubborn", kit, "--shutdown-timeout", "1000") as worker,
    ):
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=PATIENCE)
        assert worker.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)


@contextlib.contextmanager
def stubborn_worker(what: str, kit: eventkit.EventKit, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Start a worker on `STUBBORN` and return when the function runs."""
    if what == "follow":
        kit.stream("orders").publish(1)
    else:
        kit.queue("default").enqueue({"task": what, "args": {}})
    command = [*EVENTKIT, "worker", "stubborn:app", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "begun\n"
            yield worker
        finally:
            worker.kill()
