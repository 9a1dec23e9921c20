"""The dialect `sqlite+apsw://` keeps SQLAlchemy's promises, and those that eventkit needs of it."""

import datetime
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from eventkit_sqlite.dbapi import transaction_thread
from sqlalchemy import orm, pool

SUITE = Path(__file__).parent / "dialect_suite"


class Base(orm.DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(unique=True)
    at: orm.Mapped[datetime.datetime | None]
    day: orm.Mapped[datetime.date | None]


orders = sa.inspect(Order).local_table


@pytest.fixture
def connect_to(tmp_path: Path) -> Iterator[Callable[..., sa.Engine]]:
    """Makes engines on one file; what it is given follows the file's name in the URL."""
    engines = []

    def connect_to(query: str = "", **options: object) -> sa.Engine:
        engines.append(sa.create_engine(f"sqlite+apsw:///{tmp_path}/shop.db{query}", **options))
        return engines[-1]

    yield connect_to
    for engine in engines:
        engine.dispose()


@pytest.fixture
def engine(connect_to) -> sa.Engine:
    engine = connect_to()
    Base.metadata.create_all(engine)
    return engine


def driver(connection: sa.Connection) -> apsw.Connection:
    return connection.connection.driver_connection


def names(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(Order.name).order_by(Order.id)))


# URLs


def test_the_driver_connection_is_an_apsw_connection(engine):
    """SQLAlchemy hands out the connection of apsw itself, in the transaction that it began."""
    with engine.begin() as connection:
        connection.execute(orders.insert(), {"name": "a"})
        assert isinstance(driver(connection), apsw.Connection)
        assert driver(connection).execute("SELECT name FROM orders").fetchall() == [("a",)]


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


def test_a_uri_carries_the_parameters_of_sqlite(engine, tmp_path):
    """With `uri=true` the database is an SQLite URI, whose `mode=ro` refuses writes."""
    readonly = sa.create_engine(f"sqlite+apsw:///file:{tmp_path}/shop.db?mode=ro&uri=true&timeout=1")
    assert names(readonly) == []
    with pytest.raises(sa.exc.OperationalError, match="readonly"), readonly.begin() as connection:
        connection.execute(orders.insert(), {"name": "a"})
    readonly.dispose()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite+apsw:///shop.db?check_same_thread=false", "no option check_same_thread; it has timeout"),
        ("sqlite+apsw:///shop.db?mode=ro", "no option mode; .*uri=true"),
        ("sqlite+apsw:///shop.db?begin=later", "begin=later: must be one of deferred, immediate, exclusive"),
        ("sqlite+apsw://localhost/shop.db", "Valid SQLite URL forms are"),
    ],
)
def test_a_url_that_means_nothing_is_refused(url, message):
    """A mistake in the URL is an error of `create_engine()` that says what is allowed."""
    with pytest.raises(sa.exc.ArgumentError, match=message):
        sa.create_engine(url)


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


# Transactions


def test_a_savepoint_rolls_back_alone(engine):
    """What a savepoint contained can be undone while the transaction around it commits."""
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
    """Two SELECTs of one transaction agree, whatever was committed in between."""
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
        assert driver(connection).in_transaction
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
        assert not driver(connection).in_transaction
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
        assert transaction_thread(driver(writer)) == threading.get_ident()
        reader.rollback()
        writer.commit()
    assert names(engine) == ["a"]


def test_a_listener_may_begin_in_its_own_way(engine):
    """SQLAlchemy's documented event handler, which emits BEGIN IMMEDIATE, does not collide with ours."""
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as connection:
        assert driver(connection).txn_state() == apsw.SQLITE_TXN_WRITE
        assert transaction_thread(driver(connection)) == threading.get_ident()


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
        assert driver(connection).in_transaction


# Threads


def test_a_connection_may_move_between_threads(engine):
    """A transaction begun in one thread can be used and committed in another."""
    with engine.connect() as connection, ThreadPoolExecutor(1) as thread:
        thread.submit(connection.execute, orders.insert(), {"name": "a"}).result()
        connection.commit()
    assert names(engine) == ["a"]


def test_the_thread_that_began_a_transaction_is_known_while_it_is_open(engine):
    """`transaction_thread` names the beginner, whoever asks, until commit or rollback."""
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


# Errors


@pytest.mark.parametrize(
    ("statement", "parameters", "error"),
    [
        ("INSERT INTO orders (id, name) VALUES (1, 'a'), (2, 'a')", (), sa.exc.IntegrityError),
        ("INSERT INTO orders (id) VALUES (1)", (), sa.exc.IntegrityError),
        ("INSERT INTO orders (id, name) VALUES ('x', 'a')", (), sa.exc.IntegrityError),
        ("SELECT * FROM missing", (), sa.exc.OperationalError),
        ("SELEC", (), sa.exc.OperationalError),
        ("ATTACH '/missing/shop.db' AS other", (), sa.exc.OperationalError),
        ("SELECT zeroblob(2000000000)", (), sa.exc.DataError),
        ("SELECT ?", (), sa.exc.ProgrammingError),
        ("SELECT ?", (object(),), sa.exc.ProgrammingError),
    ],
)
def test_errors_have_the_classes_that_applications_catch(engine, statement, parameters, error):
    """Each failure has the class it has with SQLAlchemy's own SQLite driver, and carries apsw's error."""
    with engine.connect() as connection, pytest.raises(error) as raised:
        connection.exec_driver_sql(statement, parameters)
    assert type(raised.value) is error
    assert isinstance(raised.value.orig, apsw.Error)


def test_an_error_between_rows_is_an_error_of_sqlalchemy(engine):
    """A query that fails after its first rows does so as one that fails at once."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT abs(column1) FROM (VALUES (1), (-9223372036854775807 - 1))")
        with pytest.raises(sa.exc.OperationalError, match="integer overflow"):
            rows.all()


def test_a_file_that_is_no_database_is_a_database_error(connect_to, tmp_path):
    """What is neither the application's fault nor a passing state is a plain DatabaseError."""
    (tmp_path / "shop.db").write_text("this is not a database, but it is long enough to be one" * 20)
    with pytest.raises(sa.exc.DatabaseError, match="not a database") as raised:
        names(connect_to())
    assert type(raised.value) is sa.exc.DatabaseError


def test_a_directory_that_is_missing_is_an_operational_error():
    """A database that cannot be opened is reported when connecting."""
    with pytest.raises(sa.exc.OperationalError, match="unable to open"):
        sa.create_engine("sqlite+apsw:////missing/shop.db").connect()


def test_a_closed_connection_is_a_programming_error_and_is_replaced(engine):
    """Use after close raises ProgrammingError, marks the connection invalid, and the pool makes a new one."""
    with engine.connect() as connection:
        driver(connection).close()
        with pytest.raises(sa.exc.ProgrammingError) as raised:
            connection.execute(orders.select())
        assert raised.value.connection_invalidated
    assert names(engine) == []


def test_pre_ping_replaces_a_closed_connection(engine, connect_to):
    """With `pool_pre_ping`, a connection that died in the pool is not handed out."""
    engine = connect_to(pool_pre_ping=True)
    with engine.connect() as connection:
        dead = driver(connection)
    dead.close()
    assert names(engine) == []


# Results


def test_an_empty_result_still_has_columns(engine):
    """A query that finds no rows says what it would have returned."""
    with engine.connect() as connection:
        assert list(connection.execute(orders.select()).keys()) == ["id", "name", "at", "day"]


def test_rowcount_counts_the_rows_of_the_statement_itself(engine):
    """For one and for many parameters, rows that triggers change are not counted; -1 for a query."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE log (name)")
        connection.exec_driver_sql(
            "CREATE TRIGGER logging AFTER UPDATE ON orders BEGIN INSERT INTO log VALUES (new.name); END"
        )
        assert connection.execute(orders.insert(), [{"name": name} for name in "abc"]).rowcount == 3
        update = orders.update().where(orders.c.name == sa.bindparam("old")).values(name=sa.bindparam("new"))
        changes = [{"old": old, "new": old * 2} for old in "abx"]
        assert connection.execute(update, changes).rowcount == 2
        assert connection.execute(orders.update().values(name=orders.c.name + "!")).rowcount == 3
        assert connection.execute(orders.delete()).rowcount == 3
        assert connection.exec_driver_sql("SELECT 1").rowcount == -1


def test_the_orm_notices_rows_that_vanished(engine):
    """An ORM update of many objects, one of which is gone, raises StaleDataError."""
    with orm.Session(engine, expire_on_commit=False) as session:
        session.add_all(objects := [Order(name=name) for name in "abc"])
        session.commit()
        session.execute(sa.text("DELETE FROM orders WHERE id = 2"))
        for order in objects:
            order.name *= 2
        with pytest.raises(orm.exc.StaleDataError, match=r"3 row\(s\); 2 were matched"):
            session.flush()


def test_many_rows_are_inserted_by_one_statement_that_returns_their_ids(engine):
    """INSERT … RETURNING with many parameters is one INSERT with many VALUES."""
    statements = []
    sa.event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    with engine.begin() as connection:
        parameters = [{"name": str(number)} for number in range(50)]
        result = connection.execute(orders.insert().returning(orders.c.id), parameters)
        assert sorted(result.scalars()) == list(range(1, 51))
    assert len(statements) == 1


def test_the_orm_learns_the_ids_of_new_objects(engine):
    """Objects added together get ids in the order in which they were added."""
    with orm.Session(engine) as session:
        session.add_all(objects := [Order(name=str(number)) for number in range(50)])
        session.commit()
        assert [(order.id, order.name) for order in objects] == [(n + 1, str(n)) for n in range(50)]


def test_an_insert_without_returning_has_its_rowid(engine):
    """`inserted_primary_key` and `lastrowid` know the row of a single INSERT."""
    with engine.begin() as connection:
        result = connection.execute(orders.insert().inline(), {"id": 41, "name": "a"})
        assert result.lastrowid == 41
        result = connection.execute(orders.insert(), {"name": "b"})
        assert result.inserted_primary_key == (42,)


def test_moments_are_stored_as_sqlalchemys_driver_stores_them(engine):
    """A file written with `sqlite://` can be read with `sqlite+apsw://` and the other way round."""
    at, day = datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.date(2024, 1, 2)
    with engine.begin() as connection:
        connection.execute(orders.insert(), {"name": "a", "at": at, "day": day})
        stored = connection.exec_driver_sql("SELECT at, day FROM orders").one()
        assert stored == ("2024-01-02 03:04:05.000006", "2024-01-02")
        assert connection.execute(sa.select(orders.c.at, orders.c.day)).one() == (at, day)


def test_regexp_and_floor_are_there(engine):
    """The functions that SQLAlchemy registers for SQLite exist, and applications may add theirs."""
    with engine.connect() as connection:
        connection.connection.create_function("double", 1, lambda value: value * 2, deterministic=True)
        select = sa.select(sa.literal("order-42").regexp_match(r"-\d+$"), sa.func.floor(-1.5), sa.func.double(21))
        assert connection.execute(select).one() == (True, -2, 42)


def test_a_result_that_was_not_read_to_its_end_holds_nothing_up(engine):
    """Closing a result early lets the transaction commit."""
    with engine.begin() as connection:
        result = connection.execute(orders.insert().returning(orders.c.id), [{"name": name} for name in "ab"])
        assert result.first() == (1,)
    with engine.begin() as connection:
        assert connection.execute(orders.select()).first().name == "a"
        connection.execute(orders.delete())
    assert names(engine) == []


# SQLAlchemy's own suite


@pytest.mark.slow
def test_sqlalchemys_suite_passes_as_with_its_own_driver(tmp_path):
    """As many tests of SQLAlchemy's dialect suite pass as with `sqlite3`, and none fails."""
    runs = []
    for name in ("apsw", "pysqlite"):
        directory = tmp_path / name
        directory.mkdir()
        command = [sys.executable, "-m", "pytest", "-q", "-c", SUITE / "setup.cfg", SUITE / "suite.py"]
        runs.append(
            subprocess.Popen(
                [*command, "--dburi", f"sqlite+{name}:///suite.db"],
                cwd=directory,
                env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST")},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], "".join(output[-3000:] for output in outputs)
    ours, theirs = [re.findall(r"(\d+) (passed|skipped)", output.splitlines()[-1]) for output in outputs]
    assert ours == theirs
    assert int(ours[0][0]) > 1000
