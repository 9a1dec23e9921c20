"""A transaction of either dialect is one of SQLite from its first statement, in any thread."""

import threading
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from shop import asked, driver, in_transaction, names, only_blocking, orders


def test_a_savepoint_rolls_back_alone(engine):
    """A savepoint can be rolled back while the transaction around it commits."""
    with engine.begin() as connection:
        connection.execute(orders.insert(), {"name": "kept"})
        with connection.begin_nested():
            connection.execute(orders.insert(), {"name": "kept too"})
            inner = connection.begin_nested()
            connection.execute(orders.insert(), {"name": "undone"})
            inner.rollback()
    assert names(engine) == ["kept", "kept too"]


def test_a_transaction_that_starts_with_a_savepoint_can_be_rolled_back(engine):
    """Releasing the first savepoint commits nothing."""
    with engine.connect() as connection:
        with connection.begin_nested():
            connection.execute(orders.insert(), {"name": "undone"})
        connection.rollback()
    assert names(engine) == []


def test_a_transaction_sees_one_snapshot(engine, connect_to):
    """Two SELECTs of one transaction agree, although another one commits in between."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=wal")
    with engine.begin() as connection:
        assert connection.execute(orders.select()).all() == []
        with connect_to().begin() as other:
            other.execute(orders.insert(), {"name": "a"})
        assert connection.execute(orders.select()).all() == []
    assert names(engine) == ["a"]


def test_a_transaction_that_read_may_write(engine):
    """A SELECT before the first write belongs to the same transaction."""
    with engine.connect() as connection:
        assert connection.execute(orders.select()).all() == []
        connection.execute(orders.insert(), {"name": "a"})
        assert in_transaction(connection)
        connection.rollback()
    assert names(engine) == []


def test_ddl_is_rolled_back_with_its_transaction(engine):
    """Tables and columns that a transaction made are gone after its rollback, and rows before them too."""
    with engine.connect() as connection:
        connection.execute(orders.insert(), {"name": "undone"})
        connection.exec_driver_sql("CREATE TABLE extra (id INTEGER)")
        connection.exec_driver_sql("ALTER TABLE orders ADD COLUMN extra INTEGER")
        connection.rollback()
    assert sa.inspect(engine).get_table_names() == ["orders"]
    assert "extra" not in {column["name"] for column in sa.inspect(engine).get_columns("orders")}
    assert names(engine) == []


def test_alembic_rolls_a_failed_migration_back(engine):
    """With `transactional_ddl=True`, a migration that fails half-way leaves nothing behind."""

    def migrate(connection: sa.Connection) -> None:
        context = MigrationContext.configure(connection, opts={"transactional_ddl": True})
        with context.begin_transaction():
            Operations(context).create_table("extra", sa.Column("id", sa.Integer))
            Operations(context).execute("INSERT INTO missing VALUES (1)")

    with engine.connect() as connection, pytest.raises(sa.exc.OperationalError, match="no such table"):
        migrate(connection)
    assert sa.inspect(engine).get_table_names() == ["orders"]


def test_autocommit_makes_each_statement_a_transaction(engine):
    """Under AUTOCOMMIT nothing is left to roll back; the connection then returns to transactions."""
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection:
        connection.execute(orders.insert(), {"name": "a"})
        assert not in_transaction(connection)
        assert connection.get_isolation_level() == "SERIALIZABLE"
        connection.rollback()
    assert names(engine) == ["a"]
    with engine.connect() as connection:
        connection.execute(orders.insert(), {"name": "b"})
        connection.rollback()
    assert names(engine) == ["a"]


def test_a_commit_that_meets_a_lock_can_be_repeated(engine, connect_to):
    """A commit that fails because of a reader leaves the transaction open."""
    with connect_to("?timeout=0").connect() as writer, engine.connect() as reader:
        reader.execute(orders.select()).all()
        writer.execute(orders.insert(), {"name": "a"})
        with pytest.raises(apsw.BusyError):
            writer.connection.commit()
        assert in_transaction(writer)
        reader.rollback()
        writer.commit()
    assert names(engine) == ["a"]


def test_a_listener_may_begin_in_its_own_way(engine):
    """SQLAlchemy's documented event handler, which emits BEGIN IMMEDIATE, does not collide with the dialect's own."""
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as connection:
        assert asked(connection, lambda driver: driver.txn_state()) == apsw.SQLITE_TXN_WRITE


def test_the_documented_listener_for_foreign_keys_works(engine):
    """The handler in SQLAlchemy's manual, which sets `autocommit` around its PRAGMA, turns them on."""

    @sa.event.listens_for(engine, "connect")
    def enforce(connection, record):
        before, connection.autocommit = connection.autocommit, True
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()
        connection.autocommit = before

    engine.dispose()
    with engine.connect() as connection:
        assert connection.scalar(sa.text("PRAGMA foreign_keys")) == 1
        assert in_transaction(connection)


@only_blocking
def test_a_connection_may_move_between_threads(engine):
    """A transaction begun in one thread can be used and committed in another."""
    with engine.connect() as connection, ThreadPoolExecutor(1) as thread:
        thread.submit(connection.execute, orders.insert(), {"name": "a"}).result()
        connection.commit()
    assert names(engine) == ["a"]


def transaction_thread(connection):
    """Return the thread that a kit sees as the owner of the open transaction."""
    return getattr(connection, "thread", None) if connection.in_transaction else None


@only_blocking
def test_the_thread_that_began_a_transaction_is_known_while_it_is_open(engine):
    """The connection names the thread that began it to every thread, until commit or rollback."""
    with engine.connect() as connection, ThreadPoolExecutor(1) as thread:
        assert transaction_thread(driver(connection)) is None
        thread.submit(connection.begin).result()
        assert transaction_thread(driver(connection)) == thread.submit(threading.get_ident).result()
        connection.rollback()
        assert transaction_thread(driver(connection)) is None
        connection.begin()
        assert transaction_thread(driver(connection)) == threading.get_ident()
        connection.commit()
        assert transaction_thread(driver(connection)) is None


@only_blocking
def test_a_transaction_begun_otherwise_has_no_known_thread(engine):
    """None for a bare connection of apsw, for AUTOCOMMIT, and when SQLite ended the transaction by itself."""
    bare = apsw.Connection(":memory:")
    bare.execute("BEGIN")
    assert transaction_thread(bare) is None
    for end in (sa.Connection.commit, sa.Connection.rollback):
        with engine.connect() as connection:
            connection.begin()
            end(connection)
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("BEGIN")
            assert driver(connection).in_transaction
            assert transaction_thread(driver(connection)) is None
    with engine.connect() as connection:
        connection.begin()
        driver(connection).execute("ROLLBACK")
        assert transaction_thread(driver(connection)) is None
