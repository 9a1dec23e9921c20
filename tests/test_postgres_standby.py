"""A standby is no place for a kit: it is read-only, and does not know who is publishing on the primary."""

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import own_cluster
import pytest
from clusters import Cluster
from own_cluster import PATIENCE, ask, eventually, exercise, sleepers, succeeds

from eventkit import Disconnected

cluster, url, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left

Connect = Callable[..., Any]


def test_a_standby_is_refused(cluster: Cluster, url: str, connect: Connect) -> None:
    """It is said what it is; with all hosts in the URL the primary is found, whichever comes first."""
    with standby_of(cluster) as standby:
        connect(url)
        eventually(lambda: behind(standby) == behind(cluster), "the standby has followed")
        with pytest.raises(Disconnected, match=r"is a standby.*hot standby.*name the primary.*or all hosts"):
            connect(at(url, standby))
        exercise(connect(at(url, standby, cluster)))


@pytest.mark.parametrize("flavour", ["sync", pytest.param("async", marks=pytest.mark.slow)], indirect=True)
def test_a_standby_that_is_promoted(cluster: Cluster, url: str, connect: Connect) -> None:
    """Whoever has all hosts in the URL goes on with the new primary, also who was asleep."""
    with Cluster() as first, standby_of(first) as second:
        kit = connect(f"{at(url, first, second)}&fallback_poll=3600&busy_timeout=2")
        stream = kit.stream("t")
        received: list[Any] = []
        events = iter(stream.subscribe(start="earliest"))
        reader = threading.Thread(target=lambda: [received.append(next(events).payload) for _ in range(2)])
        reader.start()
        stream.publish("before")
        eventually(lambda: received and sleepers(first, url), "the reader sleeps")
        eventually(lambda: behind(first) == behind(second), "the standby has followed")
        first.stop("immediate")
        with pytest.raises(Disconnected):
            stream.publish("between")
        ask(second, "SELECT pg_promote()")
        eventually(lambda: succeeds(lambda: stream.publish("after")), "the new primary serves")
        reader.join(PATIENCE)
        assert received == ["before", "after"]
        events.close()
        kit.close()


@contextmanager
def standby_of(primary: Cluster) -> Iterator[Cluster]:
    """A server that follows *primary*, made of a copy of its files."""
    with Cluster() as standby:
        standby.configure(primary_conninfo=f"host=127.0.0.1 port={port(primary)} user=postgres")
        standby.stop()
        primary.stop()
        theirs, ours = primary.folder / "data", standby.folder / "data"
        configuration = (ours / "postgresql.conf").read_text()
        owner = ours.stat()
        shutil.rmtree(ours)
        shutil.copytree(theirs, ours)
        (ours / "postgresql.conf").write_text(configuration)
        (ours / "standby.signal").touch()
        for folder, folders, files in os.walk(ours):
            for name in (".", *folders, *files):
                os.chown(os.path.join(folder, name), owner.st_uid, owner.st_gid)
        ours.chmod(0o700)
        primary.start()
        standby.start()
        yield standby


def behind(cluster: Cluster) -> Any:
    """What the server has written or replayed."""
    [(position,)] = ask(
        cluster,
        "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END",
    )
    return position


def at(url: str, *clusters: Cluster) -> str:
    """*url* on other servers, the first that is the primary."""
    hosts = ",".join(f"127.0.0.1:{port(cluster)}" for cluster in clusters)
    return re.sub(r"127\.0\.0\.1:\d+", hosts, url)


def port(cluster: Cluster) -> str:
    """Where the server listens."""
    return cluster.url.rpartition(":")[2].partition("/")[0]
