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
from command_line import EVENTKIT, Commands, environment, process, running, stopped
from working import PATIENCE, until

import eventkit
from eventkit.conformance.clauses import proves
from eventkit.testing import advance

folder = command_line.folder

SHOP = "sqlite:///shop.db"


@pytest.mark.parametrize("command", [("stream", "tail", "t"), ("channel", "listen", "t")])
def test_what_is_followed_comes_at_once_and_ends_with_an_interrupt(folder: Path, command: tuple[str, ...]) -> None:
    with eventkit.connect(SHOP) as kit, running(*command, "--json", "--url", SHOP) as follower:
        assert follower.stdout is not None
        deadline = time.monotonic() + PATIENCE
        while not select.select([follower.stdout], [], [], 0.2)[0]:
            assert time.monotonic() < deadline
            kit.stream("t").publish({"n": 1})
            kit.channel("t").notify({"n": 1})
        assert json.loads(follower.stdout.readline())["payload"] == {"n": 1}
        ran = stopped(follower, signal.SIGINT)
        assert (ran.code, ran.err) == (0, "")


def test_tail_begins_with_the_newest_and_goes_on_for_a_consumer(folder: Path) -> None:
    with eventkit.connect(SHOP) as kit:
        stream = kit.stream("t")
        stream.publish_many(range(300))
        kit.stream("other").publish_many(range(300))
        stream.save_offset("search", stream.read(0, 298)[-1].offset)
        for arguments, expected in ((("-n", "3"), [297, 298, 299]), (("--consumer", "search"), [298, 299])):
            with running("stream", "tail", "t", *arguments, "--json", "--url", SHOP) as follower:
                assert follower.stdout is not None
                assert [json.loads(follower.stdout.readline())["payload"] for _ in expected] == expected
                if "--consumer" in arguments:
                    until(lambda: stream.consumers()[0].lag == 0)
                assert stopped(follower, signal.SIGINT).code == 0


def test_stats_are_watched_in_a_terminal(folder: Path) -> None:
    """The display follows the queue; an interrupt restores the terminal, with the last state on it."""
    ours, theirs = pty.openpty()
    with eventkit.connect(SHOP) as kit:
        kit.queue("jobs").enqueue_many([1] * 41)
        watcher = subprocess.Popen(
            [*EVENTKIT, "stats", "--watch", "--every", "0.1", "--url", SHOP],
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


def app(*functions: str, url: str | None = SHOP, kind: str = "App") -> None:
    """Write a module with an app in it."""
    Path("shop.py").write_text(
        "\n".join(["import eventkit", f"app = eventkit.{kind}({url!r})", *functions, ""]), "utf-8"
    )


def test_a_worker_runs_an_app_until_it_is_stopped(folder: Path) -> None:
    app("@app.task(queue='jobs')\ndef double(n: int) -> int: return 2 * n")
    (folder / "eventkit.toml").write_text("[worker]\nconcurrency = 3\n", "utf-8")
    checked = json.loads(process("check", "shop:app", "--json").stdout)
    assert (len(checked["tasks"]), checked["queues"]) == (1, ["jobs"])
    with eventkit.connect(SHOP) as kit, running("worker", "shop:app", "--queue", "jobs=2") as worker:
        made = kit.queue("jobs").enqueue({"task": checked["tasks"][0], "args": {"n": 21}})
        assert kit.results.wait(made.id, PATIENCE) == 42
        ran = stopped(worker)
        assert (ran.code, "Traceback" in ran.err) == (0, False)


@proves("A1", "L2")
@pytest.mark.parametrize("url", [None, SHOP])
def test_a_worker_runs_an_async_app(folder: Path, url: str | None) -> None:
    """It uses the app's URL, or the command's; without both, the error says how to give one."""
    app(
        "@app.task\nasync def outer(n: int) -> int: return (await inner.enqueue(n)).id",
        "@app.task\nasync def inner(n: int) -> int: return 2 * n",
        url=url,
        kind="AsyncApp",
    )
    with eventkit.connect(SHOP) as kit, running("worker", "shop:app", *(() if url else ("--url", SHOP))) as worker:
        made = kit.queue("default").enqueue({"task": "outer", "args": {"n": 21}})
        assert kit.results.wait(kit.results.wait(made.id, PATIENCE), PATIENCE) == 42
        assert stopped(worker).code == 0
    if url is None:
        ran = process("worker", "shop:app")
        assert ran.returncode == 2
        assert ran.stderr.startswith("eventkit: no database: pass --url")


@proves("L1")
def test_a_queue_that_there_is_not_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that use it or show it refuse it; a worker accepts queues of its app or of the database."""
    app("@app.task(queue='jobs')\ndef work() -> None: ...")
    with eventkit.connect(SHOP) as kit:
        kit.queue("others").enqueue(1)
    cli = Commands(capsys, SHOP)
    for command in (("queue", "show", "job"), ("stats", "job"), ("stats", "others", "job")):
        refusal = cli.refusal(1, *command)
        assert "queue 'job'" in refusal
        assert "eventkit queue list" in refusal
    cli.text("stats", "others")
    refused = process("worker", "shop:app", "-q", "job")
    assert (refused.returncode, refused.stdout, "queue 'job'" in refused.stderr) == (1, "", True)
    with running("worker", "shop:app", "-q", "jobs", "-q", "others") as worker:
        assert worker.stderr is not None
        assert "has begun: queues jobs, others" in worker.stderr.readline()


@proves("J5")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stops_at_a_signal_before_it_has_begun(folder: Path, number: int) -> None:
    """The first process of a container would otherwise ignore the signal, and start."""
    (folder / "shop.py").write_text(
        "import pathlib, time\npathlib.Path('imported').touch()\ntime.sleep(1000)\n", "utf-8"
    )
    with running("worker", "shop:app") as worker:
        until((folder / "imported").exists)
        assert stopped(worker, number) == (0, "", "")


@proves("L1")
def test_a_worker_logs_objects(folder: Path) -> None:
    """Each record has the fields of the task and the error in one piece, and libraries log nothing."""
    app("@app.task(max_attempts=1)\ndef fail() -> None: raise ValueError('on purpose')")
    with eventkit.connect(SHOP) as kit, running("worker", "shop:app", "--json") as worker:
        made = kit.queue("default").enqueue({"task": "fail"})
        with pytest.raises(eventkit.TaskFailed):
            kit.results.wait(made.id, PATIENCE)
        ran = stopped(worker)
    assert ran.code == 0
    said = [json.loads(line) for line in ran.out.splitlines()]
    assert {one["logger"] for one in said} == {"eventkit.worker"}
    [failure] = [one for one in said if one.get("task_id") == made.id]
    assert all(one["time"].endswith("+00:00") for one in said)
    expected = {"level": "error", "task_name": "fail", "queue": "default", "attempt": 1}
    assert failure.items() >= expected.items()
    assert "ValueError: on purpose" in failure["message"]


@proves("L2")
def test_a_workers_option_beats_the_environment_and_that_the_file(folder: Path) -> None:
    """Each of the values is out of range, so the error shows which of them was used."""
    app()
    (folder / "eventkit.toml").write_text("[worker]\nconcurrency = -1\ndb_retry_max_ms = -1\n", "utf-8")
    given = {"EVENTKIT_CONCURRENCY": "-2", "EVENTKIT_DB_RETRY_MAX_MS": "-2"}
    options = ("--concurrency=-3", "--db-retry-max-ms=-3")
    for value, arguments, variables in (("-1", (), {}), ("-2", (), given), ("-3", options, given)):
        ran = process("worker", "shop:app", *arguments, env=environment(**variables))
        assert (ran.returncode, ran.stderr.count(f"not {value}")) == (2, 2), ran


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
    app()
    (folder / "broken.py").write_text("import eventkit\napp = eventkit.Apq()\n", "utf-8")
    ran = process("worker", *arguments)
    [line] = ran.stderr.splitlines()
    assert (ran.returncode, word in line) == (2, True), line


def test_a_scheduler_fires_until_it_is_stopped(folder: Path) -> None:
    with eventkit.connect(SHOP) as kit:
        kit.schedules.add("often", "@every 1s", "jobs")
        with running("scheduler", "--url", SHOP) as scheduler:
            assert kit.queue("jobs").claim("test", wait=PATIENCE)
            ran = stopped(scheduler)
            assert (ran.code, "Traceback" in ran.err) == (0, False)


def test_a_dry_run_of_the_scheduler_changes_nothing(folder: Path) -> None:
    with eventkit.connect(SHOP) as kit:
        assert "no schedule is due; none fires later" in process("scheduler", "--dry-run", "--url", SHOP).stderr
        kit.schedules.add("often", "@every 1h", "jobs")
        assert "no schedule is due; the next fire is at 20" in process("scheduler", "--dry-run", "--url", SHOP).stderr
        advance(kit, 7300)
        before = kit.schedules.list()
        [fire, again] = json.loads(process("scheduler", "--dry-run", "--json", "--url", SHOP).stdout)
        assert [one["schedule"] for one in (fire, again)] == ["often", "often"]
        assert (kit.schedules.list(), kit.queue("jobs").size()) == (before, 0)


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


@contextlib.contextmanager
def stubborn_worker(what: str, kit: eventkit.EventKit, timeout: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker on `STUBBORN` from the moment when the function runs."""
    Path("stubborn.py").write_text(STUBBORN, "utf-8")
    if what == "follow":
        kit.stream("orders").publish(1)
    else:
        kit.queue("default").enqueue({"task": what, "args": {}})
    with running("worker", "stubborn:app", "--shutdown-timeout", timeout) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        yield worker


@proves("J5")
@pytest.mark.parametrize(
    ("what", "named"),
    [("stubborn", "stubborn: task 1"), ("follow", "subscriber follow"), ("leaves_another", "left behind")],
)
def test_a_worker_ends_although_a_function_does_not(folder: Path, what: str, named: str) -> None:
    """It ends after the shutdown timeout, with exit code 1 and a line that names the function."""
    with eventkit.connect(SHOP) as kit, stubborn_worker(what, kit, "0.1") as worker:
        ran = stopped(worker)
        assert (ran.code, "ignored" in ran.out) == (1, True)
        assert f"{named} does not end although it was cancelled" in ran.err
        if what == "stubborn":
            [info] = kit.queue("default").tasks()
            assert (info.state, info.attempt) == ("running", 1)


@proves("J5")
def test_a_second_signal_ends_a_worker_whose_function_does_not(folder: Path) -> None:
    with eventkit.connect(SHOP) as kit, stubborn_worker("stubborn", kit, "1000") as worker:
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert stopped(worker, signal.SIGINT).code in (128 + signal.SIGINT, 128 + signal.SIGTERM)
