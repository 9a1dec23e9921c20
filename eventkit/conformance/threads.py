"""Other threads, for what has to happen while a test waits."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which something that has not happened is a failure."""


def in_thread(function: Callable[..., T], *arguments: object) -> Future[T]:
    """Call *function* in a thread of its own; what it comes to."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="conformance", daemon=True).start()
    return future


def eventually(check: Callable[[], T]) -> T:
    """The first answer of *check* that is true; an error if it is not within a minute."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := check()):
        assert time.monotonic() < deadline, f"it did not come true in {PATIENCE:.0f} seconds"
        time.sleep(0.01)
    return answer


def take(messages: Iterator[T], count: int) -> list[T]:
    """The next *count* messages, without asking for one more; an error if they do not come within a minute."""
    return in_thread(lambda: [next(messages) for _ in range(count)]).result(PATIENCE)


def each(messages: Iterator[T], count: int) -> Iterator[T]:
    """The same, one at a time: the next is asked for when the body is done with the one before."""
    for _ in range(count):
        yield from take(messages, 1)


def rest(messages: Iterable[T]) -> list[T]:
    """The messages until the iterator ends; an error if it has not within a minute."""
    return in_thread(lambda: list(messages)).result(PATIENCE)
