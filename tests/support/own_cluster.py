"""A server of a test module's own, for faults that would disturb other tests.

A module imports the fixtures by name; they check that each test leaves neither a connection nor a thread.
"""

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from clusters import Cluster

from eventkit import Unavailable

PATIENCE = 30.0
"""Seconds after which a missing event is a failure."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Return the server."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def url(cluster: Cluster) -> str:
    """Return the URL of a schema that does not exist yet."""
    return f"{cluster.url}?schema=t_{secrets.token_hex(4)}"


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    """Check that closed kits leave neither a connection nor a thread."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: not set(threading.enumerate()) - before, "threads ended")
    if cluster.pid is not None:
        eventually(lambda: not ours(cluster), "connections ended")


def ours(cluster: Cluster) -> list[int]:
    """Return the server processes that serve kits."""
    return [pid for (pid,) in ask(cluster, "SELECT pid FROM pg_stat_activity WHERE application_name = 'eventkit'")]


def ask(cluster: Cluster, statement: str) -> list[tuple[Any, ...]]:
    """Return what the server's superuser gets for a statement."""
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def sleepers(cluster: Cluster, url: str) -> list[tuple[Any, ...]]:
    """Return the processes registered as asleep in the schema of *url*, and their subjects."""
    [schema] = re.findall(r"schema=(\w+)", url)
    return ask(cluster, f"SELECT name, listener FROM {schema}.eventkit_sleeper")


def eventually(condition: Callable[[], object], what: str) -> None:
    """Return when *condition* holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {what}"
        time.sleep(0.01)


def succeeds(call: Callable[[], object]) -> bool:
    """Return whether the call succeeds."""
    try:
        call()
    except Unavailable:
        return False
    return True


def exercise(kit: Any) -> None:
    """Make each kind of call with *kit* once."""
    stream, queue, channel = kit.stream("t"), kit.queue("q"), kit.channel("c")
    with kit.transaction() as tx:
        stream.publish("event", dedup="once", tx=tx)
        queue.enqueue("task", key="once", tx=tx)
    events = iter(stream.subscribe("consumer", start="earliest"))
    assert next(events).payload == "event"
    events.close()
    queue.configure(max_size=10, keep_done=60)
    queue.enqueue_many(["another", "and one more"])
    for task in queue.claim("w", limit=3):
        with queue.handling(task):
            pass
    assert queue.stats().done == 3
    heard = channel.listen()
    channel.notify("hello")
    assert next(iter(heard)).payload == "hello"
    heard.close()
    assert stream.prune(keep_count=0, keep_unconsumed=False) == 1
