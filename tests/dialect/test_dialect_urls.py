"""Options in the URL of `sqlite+apsw://` or `sqlite+apsw_async://` are applied, or refused."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest
import sqlalchemy as sa
from shop import Base, driver, names, only_blocking, orders
from sqlalchemy import pool


@only_blocking
def test_the_driver_connection_is_an_apsw_connection(engine):
    """SQLAlchemy hands out the connection of apsw itself, in the transaction that it began."""
    with engine.begin() as connection:
        connection.execute(orders.insert(), {"name": "a"})
        assert isinstance(driver(connection), apsw.Connection)
        assert driver(connection).execute("SELECT name FROM orders").fetchall() == [("a",)]


@only_blocking
def test_a_file_has_a_pool_of_connections_and_memory_has_one_per_thread(engine):
    """Pools are chosen as for SQLAlchemy's own SQLite driver."""
    assert isinstance(engine.pool, pool.QueuePool)
    for url in ("sqlite+apsw://", "sqlite+apsw:///:memory:"):
        assert isinstance(sa.create_engine(url).pool, pool.SingletonThreadPool)


def test_a_static_pool_shares_one_database_in_memory_between_threads():
    """With a StaticPool, what one thread wrote to `:memory:` another reads."""
    engine = sa.create_engine("sqlite+apsw://", poolclass=pool.StaticPool)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(orders.insert(), {"name": "a"})
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(names, engine).result() == ["a"]
    engine.dispose()


def test_a_uri_carries_the_parameters_of_sqlite(engine, scheme, tmp_path):
    """With `uri=true` the database is an SQLite URI, whose `mode=ro` refuses writes."""
    readonly = sa.create_engine(f"{scheme}:///file:{tmp_path}/shop.db?mode=ro&uri=true&timeout=1")
    assert names(readonly) == []
    with pytest.raises(sa.exc.OperationalError, match="readonly"), readonly.begin() as connection:
        connection.execute(orders.insert(), {"name": "a"})
    readonly.dispose()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("/shop.db?check_same_thread=false", "{} has no option check_same_thread; it has timeout"),
        ("/shop.db?mode=ro", "{} has no option mode; .*uri=true"),
        ("/shop.db?begin=later", "begin=later: must be one of deferred, immediate, exclusive"),
        ("localhost/shop.db", "Valid SQLite URL forms are"),
    ],
)
def test_a_url_that_means_nothing_is_refused(scheme, place, message):
    """A mistake in the URL is an error of `create_engine()` that names the allowed values."""
    with pytest.raises(sa.exc.ArgumentError, match=message.format(re.escape(scheme))):
        sa.create_engine(f"{scheme}://{place}")


def test_begin_immediate_takes_the_write_lock_at_once(engine, connect_to):
    """`begin=immediate` makes the second transaction wait at its start, `timeout` seconds long."""
    impatient = connect_to("?begin=immediate&timeout=0.3")
    with connect_to("?begin=immediate").begin():
        start = time.monotonic()
        with pytest.raises(sa.exc.OperationalError, match="locked"), impatient.begin():
            pass
        assert 0.25 < time.monotonic() - start < 3


def test_begin_exclusive_is_passed_on(engine, connect_to):
    """`begin=exclusive` shuts out readers (without WAL)."""
    with (
        connect_to("?begin=exclusive").begin(),
        connect_to("?timeout=0").connect() as reader,
        pytest.raises(sa.exc.OperationalError, match="locked"),
    ):
        reader.execute(orders.select())


def test_begin_deferred_takes_no_lock(engine, connect_to):
    """By default a transaction begins without a lock, so two may be open."""
    with engine.begin(), connect_to("?begin=immediate&timeout=0").begin():
        pass
