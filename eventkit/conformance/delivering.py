"""Workers that deliver outbox messages, in this process and in others, and checks of what they delivered."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from eventkit import Message

from .streaming import kit_on, transaction
from .threads import PATIENCE, eventually, in_thread, line_up


class Target:
    """A callable that records the messages it gets, and fails or blocks where a test configures it."""

    def __init__(self) -> None:
        self.messages: list[Message[Any]] = []
        self.failing: set[Any] = set()
        """Payloads whose delivery fails."""
        self.blocked: dict[Any, threading.Event] = {}
        """Payloads whose delivery blocks until the event is set."""
        self.delivered: list[Any] = []
        """Payloads that were delivered successfully."""

    def __call__(self, message: Message[Any]) -> None:
        self.messages.append(message)
        if message.payload in self.blocked:
            assert self.blocked[message.payload].wait(PATIENCE)
        if message.payload in self.failing:
            raise ConnectionError(f"no delivery of {message.payload!r}")
        self.delivered.append(message.payload)

    @property
    def payloads(self) -> list[Any]:
        """Return the payloads received, in the order of attempts."""
        return [message.payload for message in self.messages]


def add(kit: Any, outbox: Any, *payloads: Any, key: str | None = None) -> list[str]:
    """Add messages in one transaction and return their ids."""
    with kit.transaction() as tx:
        return [outbox.add(payload, tx=tx, key=key) for payload in payloads]


@contextmanager
def running(outbox: Any, workers: int = 1, **options: Any) -> Iterator[None]:
    """Run delivering workers while the body runs."""
    ends = [in_thread(lambda name=f"worker {n}": outbox.run(name, **options)) for n in range(workers)]
    try:
        yield
    finally:
        outbox.stop()
        for end in ends:
            end.result(PATIENCE)


def deliver_all(outbox: Any, **options: Any) -> None:
    """Run a worker until no deliverable message is pending."""
    with running(outbox, **options):
        eventually(lambda: _settled(outbox))


def _settled(outbox: Any) -> bool:
    stats = outbox.stats()
    return not stats.delivering and not (stats.pending and outbox.queue.stats().ready)


def deliver_to_file(url: str, flavour: str, path: str, pipe: Connection | None, hold: Any) -> None:
    """Deliver ``ordered`` in order, for ever; write a line to the file when an attempt begins and when it ends.

    Some attempts fail.  The one with the payload *hold* sends a notification and never ends.
    """
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def deliver(message: Message[Any]) -> None:
        os.write(log, f"begin {message.key} {message.payload} {message.message_id}\n".encode())
        if message.payload == hold and pipe is not None:
            pipe.send(message.attempt)
            time.sleep(PATIENCE)
        time.sleep(random.random() * 0.004)
        if random.random() < 0.1:
            raise ConnectionError
        os.write(log, f"end {message.key} {message.payload} {message.message_id}\n".encode())

    with kit_on(url, flavour) as kit:
        kit.outbox("ordered", deliver=deliver, ordered=True).run(str(os.getpid()))


def deliver_until_stopped(url: str, flavour: str, pipe: Connection) -> None:
    """Deliver ``mails`` until a signal, which arrives during the first delivery, stops the worker."""

    def deliver(message: Message[Any]) -> None:
        pipe.send(message.payload)
        time.sleep(1)

    with kit_on(url, flavour) as kit:
        outbox = kit.outbox("mails", deliver=deliver)
        signal.signal(signal.SIGTERM, lambda number, frame: outbox.stop())
        outbox.run(batch=2)


Attempt = tuple[str, str, int, str]
"""A line of the file: begin or end, key, payload, message id."""


def attempts_in(path: str) -> list[Attempt]:
    """Return the lines of the file."""
    with open(path, encoding="utf-8") as file:
        return [(what, key, int(n), id) for what, key, n, id in (line.split() for line in file)]


def check_order(attempts: list[Attempt], messages: dict[str, list[str]]) -> None:
    """Check that every message of each key arrived and began only after all earlier ones had ended."""
    for key, ids in messages.items():
        ended: set[int] = set()
        for what, its_key, n, id in attempts:
            if its_key == key:
                assert ids[n] == id, "a message changed its id"
                assert ended >= set(range(n)), f"{n} of {key} overtook {set(range(n)) - ended}"
                assert n + 1 > max(ended, default=-1), f"{n} of {key} came after {max(ended)}"
                if what == "end":
                    ended.add(n)
        assert ended == set(range(len(ids))), key


def see_in_transactions(url: str, flavour: str, racers: int, ids: list[str], seed: int) -> list[str]:
    """See the messages in an order of its own and roll some back; return those that were new."""
    chance = random.Random(seed)
    chance.shuffle(ids)
    seen: list[str] = []
    with kit_on(url, flavour) as kit:
        inbox = kit.inbox("racing")
        line_up(kit, racers)
        while ids:
            commit = chance.random() < 0.7
            with transaction(kit, commit=commit) as tx:
                first = inbox.once(ids[-1], tx=tx)
                time.sleep(chance.random() * 0.002)
            if commit:
                seen += ids[-1:] if first else []
                ids.pop()
    return seen
