"""A standby is refused: it lacks the publishers' marks, so a reader there would skip events."""

import re
import threading
from collections.abc import Callable
from typing import Any

import own_cluster
import psycopg
import pytest
from clusters import Cluster
from own_cluster import PATIENCE, ask, eventually, exercise, sleepers, succeeds

from eventkit import Disconnected
from eventkit.conformance import proves

cluster, url, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left

Connect = Callable[..., Any]


@proves("S2")
def test_a_standby_is_refused(cluster: Cluster, url: str, connect: Connect) -> None:
    """With all hosts in the URL the kit finds the primary in any order."""
    connect(url).stream("s").publish("before")
    with Cluster(primary=cluster) as standby:
        eventually(lambda: behind(standby) == behind(cluster), "the standby has followed")
        for attributes in ("any", "prefer-standby", "standby", "read-only", "primary", "read-write"):
            with pytest.raises(
                Disconnected, match=r"is a standby.*(hot standby|read-only).*name the primary.*or all hosts"
            ):
                connect(f"{at(url, standby)}&target_session_attrs={attributes}")
        with connect(f"{at(url, standby, cluster)}&target_session_attrs=prefer-standby") as kit:
            assert [event.payload for event in kit.stream("s").read()] == ["before"]
        exercise(connect(at(url, standby, cluster)))


@proves("S2")
@pytest.mark.parametrize("flavour", ["sync"], indirect=True)
def test_the_functions_refuse_to_read_on_a_standby(cluster: Cluster, url: str, connect: Connect) -> None:
    """A pooler may lead a connection of the kit there later, and plain SQL uses no kit."""
    connect(url).stream("s").publish("before")
    [schema] = re.findall(r"schema=(\w+)", url)
    with Cluster(primary=cluster) as standby:
        eventually(lambda: behind(standby) == behind(cluster), "the standby has followed")
        for call in ("eventkit_events_after('s', 0, 10)", "eventkit_head('t')", "eventkit_latest_notification('{c}')"):
            with pytest.raises(psycopg.errors.CannotConnectNow, match="hot standby"):
                ask(standby, f"SET search_path = {schema}; SELECT * FROM {call}")


@pytest.mark.parametrize("flavour", ["sync", pytest.param("async", marks=pytest.mark.slow)], indirect=True)
def test_a_standby_that_is_promoted(cluster: Cluster, url: str, connect: Connect) -> None:
    """A kit with all hosts in its URL reads nothing before the promotion, and goes on after it; so does a sleeper."""
    with Cluster() as first, Cluster(primary=first) as second:
        kit = connect(f"{at(url, first, second)}&fallback_poll=3600&busy_timeout=2&target_session_attrs=any")
        stream = kit.stream("t")
        received: list[Any] = []
        events = iter(stream.subscribe(start="earliest"))
        reader = threading.Thread(target=lambda: [received.append(next(events).payload) for _ in range(2)])
        reader.start()
        stream.publish("before")
        eventually(lambda: received and sleepers(first, url), "the reader sleeps")
        eventually(lambda: behind(first) == behind(second), "the standby has followed")
        first.stop("immediate")
        for call in (stream.read, lambda: stream.publish("between")):
            with pytest.raises(Disconnected):
                call()
        ask(second, "SELECT pg_promote()")
        eventually(lambda: succeeds(lambda: stream.publish("after")), "the new primary serves")
        reader.join(PATIENCE)
        assert received == ["before", "after"]
        events.close()
        kit.close()


def behind(cluster: Cluster) -> Any:
    """Return the position that the server has written or replayed."""
    [(position,)] = ask(
        cluster,
        "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END",
    )
    return position


def at(url: str, *clusters: Cluster) -> str:
    """Return *url* on other servers; the first is the primary."""
    hosts = ",".join(f"127.0.0.1:{port(cluster)}" for cluster in clusters)
    return re.sub(r"127\.0\.0\.1:\d+", hosts, url)


def port(cluster: Cluster) -> str:
    """Return the port of the server."""
    return cluster.url.rpartition(":")[2].partition("/")[0]
