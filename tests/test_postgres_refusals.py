"""Refusals of a server: each raises an error of eventkit, whose message names the remedy."""

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import eventkit_migrations
import eventkit_postgres
import own_cluster
import psycopg
import pytest
from clusters import Cluster, ClusterError, free_port
from own_cluster import PATIENCE, ask, eventually, exercise, sleepers, succeeds

from eventkit import Busy, Disconnected, NewEvent, Unavailable, conformance
from eventkit.conformance import proves
from eventkit.conformance.replaying import kinds

cluster, url, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left

Connect = Callable[..., Any]
GUIDE = Path(__file__).parent.parent / "docs" / "guide.md"


@pytest.fixture(scope="module")
def german() -> Iterator[Cluster]:
    """Return a server whose messages are in German."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANGUAGE", "de")
        try:
            with Cluster(lc_messages="C.UTF-8") as cluster:
                with pytest.raises(psycopg.errors.UndefinedTable) as missing:
                    ask(cluster, "TABLE missing")
                if "existiert nicht" not in str(missing.value):
                    pytest.skip("PostgreSQL on this machine has no German messages")
                yield cluster
        except ClusterError as error:
            pytest.skip(f"PostgreSQL on this machine has no locale C.UTF-8: {error}")


def test_a_port_without_a_server(url: str, connect: Connect) -> None:
    """The error says that the server is not reachable, and where."""
    nowhere = re.sub(r":\d+/", f":{free_port()}/", url)
    with pytest.raises(Disconnected, match=r"no connection to postgresql://.*Connection refused.*is running"):
        connect(nowhere)


def test_a_folder_without_a_socket(connect: Connect) -> None:
    """A URL may name the folder of a server's socket instead of a host."""
    with pytest.raises(Disconnected, match=r"/nowhere/\.s\.PGSQL"):
        connect("postgresql:///postgres?host=/nowhere")


def test_an_unknown_database(url: str, connect: Connect) -> None:
    """The error says that no database has that name."""
    with pytest.raises(Unavailable, match=r"no database of the server .*nowhere.* create it, or correct the URL"):
        connect(url.replace("/postgres?", "/nowhere?"))


def test_an_unknown_role(url: str, connect: Connect) -> None:
    """The error says that the user is refused."""
    with pytest.raises(Unavailable, match=r"refuses the user .*unknown"):
        connect(url.replace("postgres@", "unknown@"))


def test_a_wrong_password(cluster: Cluster, url: str, connect: Connect) -> None:
    """The error says so, and the attempt is not repeated; with the right password the kit connects."""
    ask(cluster, "CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'right'")
    rules = cluster.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    try:
        rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{before}")
        cluster.configure()
        with pytest.raises(Unavailable, match=r"refuses the user or the password") as refused:
            connect(url.replace("postgres@", "locked:wrong@"))
        assert "wrong" not in str(refused.value)
        assert not isinstance(refused.value, Disconnected)

        kit = connect(url.replace("postgres@", "locked:right@") + "&busy_timeout=2")
        assert kit.stream("t").publish(1) == 1
        ask(cluster, "ALTER ROLE locked PASSWORD 'changed'")
        ask(cluster, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'locked'")
        with pytest.raises(Unavailable, match=r"refuses the user or the password"):
            kit.stream("t").publish(2)
        with pytest.raises(Unavailable, match=r"refuses the user or the password"):
            next(iter(kit.stream("t").subscribe(start="latest")))
        ask(cluster, "ALTER ROLE locked PASSWORD 'right'")
        eventually(lambda: succeeds(lambda: kit.stream("t").publish(3)), "the password is taken again")
        kit.close()
    finally:
        rules.write_text(before)
        cluster.configure()
        ask(cluster, "DROP OWNED BY locked CASCADE; DROP ROLE locked")


def test_no_connection_is_left(cluster: Cluster, url: str, connect: Connect) -> None:
    """The error names max_connections; existing connections work on, and others when there is room."""
    cluster.configure(max_connections=10)
    others: list[psycopg.Connection[Any]] = []
    try:
        kit = connect(f"{url}&busy_timeout=2")
        queue = kit.queue("q")
        queue.enqueue("before")
        fill(cluster, others)
        with pytest.raises(Busy, match=r"no connection left .* raise max_connections, .* or lower max_size"):
            connect(url)
        [task] = queue.claim("w")
        with kit.transaction() as tx:
            queue.ack(task, tx=tx)
            with pytest.raises(Busy, match=r"no connection left .* raise max_connections, .* or lower max_size"):
                queue.enqueue("without a connection")

        claimed: list[Any] = []
        waiter = threading.Thread(target=lambda: claimed.extend(queue.claim("w", wait=30)))
        waiter.start()
        for other in others:
            other.close()
        eventually(lambda: succeeds(lambda: queue.enqueue("after")), "there is room")
        waiter.join(own_cluster.PATIENCE)
        assert [task.payload for task in claimed] == ["after"]
        kit.close()
    finally:
        for other in others:
            other.close()
        cluster.configure(max_connections=200)


@proves("G2")
def test_a_server_that_refuses_in_german(german: Cluster, connect: Connect) -> None:
    """The SQLSTATE of a failed connect decides, in any language of the server's messages."""
    ask(german, "DROP ROLE IF EXISTS locked; CREATE ROLE locked LOGIN PASSWORD 'right'")
    rules = german.folder / "data" / "pg_hba.conf"
    rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    german.configure()
    with pytest.raises(Unavailable, match=r"refuses the user or the password .*Passwort-Authentifizierung"):
        connect(german.url.replace("postgres@", "locked:wrong@"))
    with pytest.raises(Unavailable, match=r"refuses the user or the password .*existiert nicht"):
        connect(german.url.replace("postgres@", "missing@"))
    with pytest.raises(Unavailable, match=r"no database of the server .*existiert nicht.* create it"):
        connect(german.url.removesuffix("postgres") + "missing")


@proves("G2")
def test_a_role_at_its_connection_limit(german: Cluster, connect: Connect) -> None:
    """The call is `Busy`; subscribers, workers, schedulers and maintenance wait, and go on when there is room."""
    role = f"shop_{secrets.token_hex(4)}"
    ask(german, f"CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE postgres TO {role}")
    url = german.url.replace("postgres@", f"{role}@") + f"?schema={role}&busy_timeout=1&fallback_poll=0.2"
    kit = connect(url)
    kit.schedules.add("minutely", "@every 1m", "other")
    loops: list[Callable[[], Any]] = [
        lambda: next(iter(kit.stream("t").subscribe(start="earliest"))).payload,
        lambda: next(iter(kit.queue("q").work("w"))).payload,
        kit.run_scheduler,
        kit.run_maintenance,
    ]
    with ThreadPoolExecutor() as threads, closing(kit):
        running = [threads.submit(loop) for loop in loops]
        # A subscription that has not been attached yet raises the error.
        eventually(lambda: len({name for name, _ in sleepers(german, url)}) == len(loops), "all of them sleep")
        ask(german, f"ALTER ROLE {role} CONNECTION LIMIT 0")
        ask(german, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{role}'")
        for _ in range(2):
            with pytest.raises(Busy, match=r"no connection left .*zu viele.* the CONNECTION LIMIT of the role"):
                kit.stream("t").publish("refused")
        time.sleep(1.5)  # The loops get it as well.
        assert [one.exception() for one in running if one.done()] == []
        ask(german, f"ALTER ROLE {role} CONNECTION LIMIT -1")
        eventually(lambda: succeeds(lambda: kit.stream("t").publish("taken")), "there is room")
        eventually(lambda: succeeds(lambda: kit.queue("q").enqueue("taken")), "there is room")
        assert [one.result(PATIENCE) for one in running[:2]] == ["taken", "taken"]
        assert not any(one.done() for one in running[2:])
    assert [one.result(PATIENCE) for one in running[2:]] == [None, None]


def test_a_read_only_session(url: str, connect: Connect) -> None:
    """Reading calls work; a writing call says that the session is read-only."""
    read_only = f"{url}&options=-c%20default_transaction_read_only%3Don"
    with pytest.raises(Unavailable, match=r"is read-only .*the primary.*default_transaction_read_only"):
        connect(read_only)
    connect(url).stream("t").publish("written")
    kit = connect(read_only)
    assert [event.payload for event in kit.stream("t").read()] == ["written"]
    for write in (kit.stream("t").publish, kit.queue("q").enqueue, kit.channel("c").notify):
        with pytest.raises(Unavailable, match=r"is read-only .*the primary.*default_transaction_read_only"):
            write("refused")


def test_a_role_that_may_not_make_tables(cluster: Cluster, url: str, connect: Connect) -> None:
    """The error names the rights to grant; with those of the guide, and no more, all calls work."""
    ask(cluster, "CREATE ROLE shop LOGIN")
    schema = url.partition("schema=")[2]
    of_shop = url.replace("postgres@", "shop@")
    try:
        needed = r"permission denied.*GRANT it USAGE ON SCHEMA.*GRANT it CREATE ON DATABASE.*_migrations upgrade"
        with pytest.raises(Unavailable, match=needed):
            connect(of_shop)
        connect(url)
        with pytest.raises(Unavailable, match=needed):
            connect(of_shop)
        [grants] = re.findall(r"```sql\n(GRANT .*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
        ask(cluster, re.sub(r"\beventkit\b", schema, grants))

        kit = connect(of_shop)
        exercise(kit)
        kit.close()
    finally:
        ask(cluster, "DROP OWNED BY shop; DROP ROLE shop")


@proves("T4")
def test_a_role_that_may_not_make_triggers(cluster: Cluster, url: str, connect: Connect) -> None:
    """The error names the right that a history needs; ending a history needs none."""
    ask(cluster, "CREATE ROLE shop LOGIN")
    schema = url.partition("schema=")[2]
    try:
        owner = connect(url)
        [grants] = re.findall(r"```sql\n(GRANT .*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
        ask(cluster, re.sub(r"\beventkit\b", schema, grants))
        queue = connect(url.replace("postgres@", "shop@")).queue("q")
        needed = rf"GRANT TRIGGER ON {schema}.eventkit_task TO shop, or let its owner postgres call configure"
        with pytest.raises(Unavailable, match=needed):
            queue.configure(history=True, lease=7)
        assert (queue.settings().history, queue.settings().lease) == (False, None)
        owner.queue("other").configure(history=True)
        queue.configure(history=True)
        queue.enqueue(1)
        owner.queue("other").configure(history=False)
        queue.configure(history=False)
        queue.enqueue(2)
        assert kinds(owner) == ["enqueued"]
        owner.queue("other").configure(history=False)
        ask(cluster, f"GRANT TRIGGER ON {schema}.eventkit_task TO shop")
        queue.configure(history=True)
        queue.enqueue(3)
        assert kinds(owner) == ["enqueued"] * 2
    finally:
        ask(cluster, "DROP OWNED BY shop; DROP ROLE shop")


@proves("G2")
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding(cluster: Cluster, connect: Connect, encoding: str) -> None:
    """`connect` and the migrations refuse it in one sentence, before they create anything."""
    name = f"of_{encoding.lower()}_{secrets.token_hex(4)}"
    ask(cluster, f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    place = cluster.url.removesuffix("postgres") + name
    for call in (connect, eventkit_migrations.upgrade):
        with pytest.raises(Unavailable, match=rf"is in the encoding {encoding}, .* needs UTF8: create the database"):
            call(place)


@proves("G8")
@pytest.mark.parametrize("pooler", ["session", "transaction"])
def test_settings_that_would_change_texts(cluster: Cluster, url: str, connect: Connect, pooler: str) -> None:
    """A ``client_encoding`` or ``array_nulls`` of a role or of the URL does not affect the kit's connections."""
    role = f"shop_{secrets.token_hex(4)}"
    ask(cluster, f"CREATE ROLE {role} LOGIN SUPERUSER")
    ask(cluster, f"ALTER ROLE {role} SET array_nulls = off; ALTER ROLE {role} SET client_encoding = latin1")
    kit = connect(url.replace("postgres@", f"{role}@") + f"&client_encoding=latin1&pooler={pooler}")
    kit.stream("t").publish_many([NewEvent("é", key=None), NewEvent("🙂", key="🙂", headers={"ä": "ö"})])
    assert [(event.payload, event.key, event.headers) for event in kit.stream("t").read()] == [
        ("é", None, {}),
        ("🙂", "🙂", {"ä": "ö"}),
    ]
    kit.queue("q").enqueue_many(["é", "🙂"])
    assert [(task.payload, task.key) for task in kit.queue("q").claim("w", limit=2)] == [("é", None), ("🙂", None)]


def test_a_lock_that_is_not_obtained_in_time(cluster: Cluster, url: str, connect: Connect) -> None:
    """The call is `Busy`, has no effect, and succeeds when the lock is gone."""
    kit = connect(f"{url}&busy_timeout=0.2")
    schema = url.partition("schema=")[2]
    with psycopg.connect(cluster.url) as other:
        other.execute(f"LOCK TABLE {schema}.eventkit_event".encode())
        for call in (lambda: kit.stream("t").publish(1), lambda: kit.stream("t").publish_many([1, 2])):
            with pytest.raises(Busy, match=r"conflict with another.*lock timeout.*try again, or raise busy_timeout"):
                call()
    kit.stream("t").publish("free")
    assert [event.payload for event in kit.stream("t").read()] == ["free"]


def test_a_transaction_that_idles_for_too_long(cluster: Cluster, url: str, connect: Connect) -> None:
    """Its end says that it was rolled back, and the kit goes on with another connection."""
    kit = connect(f"{url}&options=-c%20idle_in_transaction_session_timeout%3D500")
    with (
        pytest.raises(Disconnected, match=r"rolled it back.*idle_in_transaction_session_timeout"),
        kit.transaction() as tx,
    ):
        kit.stream("t").publish("too slow", tx=tx)
        eventually(lambda: "idle in transaction" not in states(cluster), "the server's patience ends")
    assert kit.stream("t").read() == []
    with pytest.raises(psycopg.Error), kit.transaction() as tx:
        kit.stream("t").publish("too slow", tx=tx)
        eventually(lambda: "idle in transaction" not in states(cluster), "the server's patience ends")
        kit.stream("t").publish("too late", tx=tx)
    kit.stream("t").publish("in time")
    assert [event.payload for event in kit.stream("t").read()] == ["in time"]


def fill(cluster: Cluster, others: list[psycopg.Connection[Any]]) -> None:
    """Open so many *others* that the server takes no more; recently closed ones may still count."""
    for _ in range(10):
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            while True:
                others.append(psycopg.connect(cluster.url))
        time.sleep(0.02)


def states(cluster: Cluster) -> set[object]:
    """Return the states of the kits' connections."""
    return {
        state for (state,) in ask(cluster, "SELECT state FROM pg_stat_activity WHERE application_name = 'eventkit'")
    }


@pytest.mark.parametrize("flavour", ["sync", "async"])
def test_a_backend_need_not_declare_that_it_has_concurrent_writers(
    postgres_url: str, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite accepts a call without tx= that succeeds, even if the capability is not declared."""
    monkeypatch.setattr(eventkit_postgres, "capabilities", frozenset())
    conformance.test_forgetting_tx_never_waits_for_oneself(postgres_url, flavour)
