"""Concurrent calls share a transaction, and a failing one does not affect the others (G6, G12)."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slow_disk import SlowDisk

import eventkit
from eventkit.conformance.processes import PATIENCE, background, spawn

CALLERS = 64


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path}/shop.db"


@pytest.fixture
def kit(url: str) -> Iterator[eventkit.EventKit]:
    with eventkit.connect(url) as kit:
        yield kit


def bad(number: int) -> bool:
    """Return whether this caller passes an invalid argument, as every fourth does."""
    return number % 4 == 0


def check(kit: eventkit.EventKit, outcomes: list[Any]) -> None:
    """Check that the good calls happened exactly once, with the ids they returned, and the bad ones did not."""
    for number, outcome in enumerate(outcomes):
        if bad(number):
            assert isinstance(outcome, eventkit.QueueFull if number % 8 else ValueError), (number, outcome)
    answered = {outcome.id: number for number, outcome in enumerate(outcomes) if not bad(number)}
    assert {info.id: info.payload for info in kit.queue("q").tasks(limit=1000)} == answered
    assert kit.queue("full").tasks() == []


def test_threads_enqueue_at_once(kit: eventkit.EventKit) -> None:
    """All rows are stored, and each failure is raised to its own caller."""
    kit.queue("full").configure(max_size=1)
    barrier = threading.Barrier(CALLERS)

    def call(number: int) -> Any:
        barrier.wait()
        try:
            if not bad(number):
                return kit.queue("q").enqueue(number)
            return kit.queue("full").enqueue_many([1, 2]) if number % 8 else kit.queue("q").enqueue(float("nan"))
        except (eventkit.QueueFull, ValueError) as error:
            return error

    futures = [background(call, number) for number in range(CALLERS)]
    check(kit, [future.result(PATIENCE) for future in futures])


def test_tasks_enqueue_at_once(kit: eventkit.EventKit, url: str) -> None:
    """The same holds for the tasks of an event loop."""
    kit.queue("full").configure(max_size=1)

    async def main() -> list[Any]:
        async with eventkit.connect_async(url) as kit:

            async def call(number: int) -> Any:
                if not bad(number):
                    return await kit.queue("q").enqueue(number)
                if number % 8:
                    return await kit.queue("full").enqueue_many([1, 2])
                return await kit.queue("q").enqueue(float("nan"))

            return await asyncio.gather(*(call(number) for number in range(CALLERS)), return_exceptions=True)

    check(kit, asyncio.run(main()))


def test_a_failure_in_the_middle_of_a_plan_is_undone_alone(kit: eventkit.EventKit) -> None:
    """Batches that had inserted rows before they failed leave none behind, and remove none of others."""
    kit.queue("full").configure(max_size=3)
    kit.queue("full").enqueue_many([0, 0])
    barrier = threading.Barrier(24)

    def call(number: int) -> str:
        barrier.wait()
        try:
            if number % 3:
                kit.stream("t").publish(number)
            else:
                kit.queue("full").enqueue_many([number, number])
        except eventkit.QueueFull:
            return "full"
        return "done"

    outcomes = [future.result(PATIENCE) for future in [background(call, number) for number in range(24)]]
    assert outcomes == ["done" if number % 3 else "full" for number in range(24)]
    assert len(kit.stream("t").read()) == 16
    assert [info.payload for info in kit.queue("full").tasks()] == [0, 0]


@pytest.mark.parametrize("flavour", ["threads", "tasks"])
def test_commits_are_shared_when_they_are_slow(tmp_path: Path, flavour: str) -> None:
    """Many callers on a disk whose fsync takes 50 ms wait for a few fsyncs, not for one each."""
    url = f"sqlite:///{tmp_path}/shop.db?durability=full"
    with spawn(write_to_a_slow_disk, url, flavour) as process:
        pass
    commits = process.result()
    assert 1 <= commits <= CALLERS // 4
    with eventkit.connect(url) as kit:
        assert kit.queue("q").size() == CALLERS


def write_to_a_slow_disk(url: str, flavour: str) -> int:
    with eventkit.connect(url):
        pass
    disk = SlowDisk(0.05)

    def threads() -> int:
        with eventkit.connect(url) as kit:
            disk.syncs = 0
            for future in [background(kit.queue("q").enqueue, number) for number in range(CALLERS)]:
                future.result(PATIENCE)
            return disk.syncs

    async def tasks() -> int:
        async with eventkit.connect_async(url) as kit:
            disk.syncs = 0
            await asyncio.gather(*(kit.queue("q").enqueue(number) for number in range(CALLERS)))
            return disk.syncs

    return threads() if flavour == "threads" else asyncio.run(tasks())


def test_a_single_caller_commits_each_call(tmp_path: Path) -> None:
    """A returned call is on the disk: sequential calls make one fsync each."""
    url = f"sqlite:///{tmp_path}/shop.db?durability=full"
    with spawn(write_one_by_one, url) as process:
        pass
    assert process.result() >= 5


def write_one_by_one(url: str) -> int:
    disk = SlowDisk(0)
    with eventkit.connect(url) as kit:
        disk.syncs = 0
        for number in range(5):
            kit.queue("q").enqueue(number)
        return disk.syncs


def test_an_interrupted_thread_does_not_affect_others(url: str) -> None:
    """After Ctrl-C in one thread at any point, the others' answers are true, and the kit works on."""
    with spawn(interrupt_the_main_thread, url) as process:
        pass
    answered, denied, interrupted = process.result()
    assert interrupted > 10
    with eventkit.connect(url) as kit:
        offsets = {event.offset: event.payload for event in kit.stream("t").read(limit=10**7)}
        assert {offset: offsets.get(offset) for offset in answered} == answered
        assert not [payload for payload in offsets.values() if payload in denied]


def interrupt_the_main_thread(url: str) -> tuple[dict[int, Any], list[Any], int]:
    answered: dict[int, Any] = {}
    denied: list[Any] = []
    stop = threading.Event()

    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, strike)
    with eventkit.connect(url) as kit:
        stream = kit.stream("t")

        def publish(thread: int) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                try:
                    answered[stream.publish([thread, number])] = [thread, number]
                except eventkit.Unavailable as error:
                    assert "try again" in str(error)  # noqa: PT017
                    denied.append([thread, number])

        others = [background(publish, thread) for thread in range(3)]
        interrupted = 0
        until = time.monotonic() + 5
        while interrupted < 200 and time.monotonic() < until:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.01))
                while True:
                    stream.publish("main")
            except KeyboardInterrupt:
                interrupted += 1
        stop.set()
        for future in others:
            future.result(PATIENCE)
        answered[stream.publish("main")] = "main"
    return answered, denied, interrupted
