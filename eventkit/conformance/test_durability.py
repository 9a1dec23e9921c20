"""A call that has returned has happened (G6)."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

import eventkit
from eventkit import EventKit

from .clauses import proves
from .processes import PATIENCE, Elsewhere, another_process, spawn  # noqa: F401  # a fixture
from .urls import with_options


@proves("G6")
def test_what_a_call_has_written_is_there_for_everybody(kit: EventKit, url: str, elsewhere: Elsewhere) -> None:
    """Without ``tx=`` a call is committed when it returns: another process finds it at once."""
    stream, queue = kit.stream("t"), kit.queue("q")
    for number in range(1, 21):
        offset = stream.publish(number)
        id, _ = queue.enqueue(number)
        stream.save_offset("c", number)
        assert elsewhere(_look, url, offset - 1, id) == ([number], number, "ready")
        [task] = queue.claim("w")
        assert elsewhere(_look, url, offset, id) == ([], number, "leased")
        queue.ack(task)
        assert elsewhere(_look, url, offset, id) == ([], number, None)


def _look(url: str, after: int, id: int) -> tuple[list[Any], int, str | None]:
    with eventkit.connect(url) as kit:
        info = kit.queue("q").get(id)
        events = kit.stream("t").read(after)
        return [event.payload for event in events], kit.stream("t").offset("c"), info.state if info else None


@proves("G6")
@pytest.mark.parametrize("durability", ["full", "normal", "off"])
def test_a_process_that_is_killed_has_written_what_it_was_told(url: str, tmp_path: Path, durability: str) -> None:
    """Whatever a call answered before its process was killed is there, at every level of durability."""
    told = tmp_path / "told"
    with spawn(_write_until_killed, with_options(url, durability=durability), told) as writer:
        deadline = time.monotonic() + PATIENCE
        while not told.exists() or told.stat().st_size < 1000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        writer.kill()
    offsets = [int(line) for line in told.read_text().split("\n")[:-1]]
    with eventkit.connect(url) as kit:
        assert {event.offset for event in kit.stream("t").read(limit=10**6)} >= set(offsets)
        assert {info.payload for info in kit.queue("q").list(limit=10**6)} >= set(offsets)


def _write_until_killed(url: str, told: Path) -> None:
    kit = eventkit.connect(url)
    file = os.open(told, os.O_WRONLY | os.O_CREAT)
    while True:
        offset = kit.stream("t").publish("x")
        kit.queue("q").enqueue(offset)
        os.write(file, f"{offset}\n".encode())
