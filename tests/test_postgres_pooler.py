"""Behind PgBouncer in transaction mode, where each transaction may be on another session of the server.

A sample of the conformance suite is here; the slow group has all of it (`test_postgres_pooled`).
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import own_cluster
import pooler
import pytest
from clusters import Cluster
from own_cluster import ask, eventually, sleepers
from pooler import Pooler

from eventkit import Unavailable
from eventkit.conformance import pytest_generate_tests  # noqa: F401  # for pytest
from eventkit.conformance.test_finish import *
from eventkit.conformance.test_streams import *

cluster, direct, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left
pytestmark = pytest.mark.skipif(pooler.find() is None, reason=pooler.MISSING)

Connect = Callable[..., Any]


@pytest.fixture(scope="module")
def front(cluster: Cluster) -> Iterator[Pooler]:
    """Return the pooler."""
    with Pooler(cluster) as front:
        yield front


@pytest.fixture
def behind(front: Pooler, cluster: Cluster, direct: str) -> str:
    """Return the URL of a schema that does not exist yet, behind the pooler, without the option for listening.

    The pooler keeps its sessions, so the checks must not count them as the kit's.
    """
    return f"{direct.replace(cluster.url, front.url)}&pooler=transaction&application_name=pooler"


@pytest.fixture
def url(behind: str, cluster: Cluster) -> str:
    """Return the same URL with that option."""
    return f"{behind}&listen_url={quote(cluster.url, safe='')}"


def test_everything_works(url: str, connect: Connect) -> None:
    """Streams, queues, channels and transactions work as without a pooler."""
    own_cluster.exercise(connect(url))


def test_settings_are_the_transaction_s(cluster: Cluster, front: Pooler, url: str, connect: Connect) -> None:
    """The durability of the URL applies to the kit's transactions, and to no others."""
    kit = connect(f"{url}&durability=off&busy_timeout=3&max_size=1")
    with kit.transaction() as tx:
        assert setting(tx, "synchronous_commit") == "off"
        assert setting(tx, "lock_timeout") == "3s"
    # The server's only session so far serves the next client.
    import psycopg

    with psycopg.connect(front.url) as other:
        assert other.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert other.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_waiters_are_woken_by_publishers_behind_the_pooler(cluster: Cluster, url: str, connect: Connect) -> None:
    """A subscriber, a worker and a listener hear of commits through the pooler without a poll."""
    url += "&fallback_poll=3600"
    waiting, working = connect(url), connect(url)
    heard: list[Any] = []
    sources = [
        lambda: next(iter(waiting.stream("t").subscribe(start="earliest"))),
        lambda: waiting.queue("q").claim("w", wait=own_cluster.PATIENCE)[0],
    ]
    threads = [threading.Thread(target=lambda s=source: heard.append(s().payload)) for source in sources]
    for thread in threads:
        thread.start()
    eventually(lambda: len(sleepers(cluster, url)) == 2, "both sleep")
    working.stream("t").publish("event")
    working.queue("q").enqueue("task")
    for thread in threads:
        thread.join(own_cluster.PATIENCE)
    assert sorted(heard) == ["event", "task"]


def test_without_a_listen_url_a_waiter_says_so(behind: str, connect: Connect) -> None:
    """All other calls work; a call that would wait for ever raises at once and names the option."""
    kit = connect(behind)
    kit.stream("t").publish(1)
    assert len(kit.stream("t").read()) == 1
    with pytest.raises(Unavailable, match=r"notifications do not arrive.*\?listen_url="):
        kit.queue("q").claim("w", wait=own_cluster.PATIENCE)


def test_a_listen_url_that_leads_to_the_pooler_too_is_noticed(
    front: Pooler, behind: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears its own notifications and no others, which is not enough."""
    monkeypatch.setattr("eventkit_postgres.waking._ANSWER", 1.0)
    elsewhere = f"{front.url}?application_name=pooler&connect_timeout=9"
    kit = connect(f"{behind}&listen_url={quote(elsewhere, safe='')}")
    with pytest.raises(Unavailable, match=r"notifications do not arrive.*\?listen_url="):
        kit.queue("q").claim("w", wait=own_cluster.PATIENCE)


def test_without_the_option_the_url_is_refused(behind: str, connect: Connect) -> None:
    """The error says that it leads to a pooler, and names the option."""
    with pytest.raises(Unavailable, match=r"pooler.*\?pooler=transaction.*listen_url="):
        connect(behind.replace("&pooler=transaction&", "&"))


def test_a_pooler_that_loses_the_server_s_connections(cluster: Cluster, url: str, connect: Connect) -> None:
    """Connections behind it end and the server restarts; calls raise or succeed, and work afterwards."""
    kit = connect(f"{url}&busy_timeout=2")
    stream = kit.stream("t")
    done: list[int] = []
    for number in range(60):
        if number % 20 == 10:
            ask(cluster, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        if number == 40:
            cluster.restart("immediate")
        try:
            stream.publish(number)
        except Unavailable:
            continue
        done.append(number)
    eventually(lambda: own_cluster.succeeds(lambda: stream.publish(60)), "the pooler is connected again")
    published = [event.payload for event in stream.read()]
    assert set(done) < set(published)
    assert len(published) == len(set(published))
    assert len(done) > 20


def setting(tx: Any, name: str) -> str:
    """Return the value of the setting in a transaction."""
    [(value,)] = tx.execute(f"SHOW {name}").fetchall()
    return str(value)
