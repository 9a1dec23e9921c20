"""Errors of `sqlite+apsw://` and `sqlite+apsw_async://` have the classes that applications catch."""

import apsw
import pytest
import sqlalchemy as sa
from shop import names, orders


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
    """A query that fails after its first rows raises like one that fails at once."""
    with engine.connect() as connection, pytest.raises(sa.exc.OperationalError, match="integer overflow"):
        connection.exec_driver_sql("SELECT abs(column1) FROM (VALUES (1), (-9223372036854775807 - 1))").all()


def test_a_file_that_is_no_database_is_a_database_error(connect_to, tmp_path):
    """An error that is neither the application's fault nor temporary is a plain DatabaseError."""
    (tmp_path / "shop.db").write_text("this is not a database, but it is long enough to be one" * 20)
    with pytest.raises(sa.exc.DatabaseError, match="not a database") as raised:
        names(connect_to())
    assert type(raised.value) is sa.exc.DatabaseError


def test_a_directory_that_is_missing_is_an_operational_error(scheme):
    """A database that cannot be opened is reported when connecting."""
    with pytest.raises(sa.exc.OperationalError, match="unable to open"):
        sa.create_engine(f"{scheme}:////missing/shop.db").connect()


def test_a_closed_connection_is_a_programming_error_and_is_replaced(engine):
    """Use after close raises ProgrammingError, marks the connection invalid, and the pool makes a new one."""
    with engine.connect() as connection:
        connection.connection.dbapi_connection.close()
        with pytest.raises(sa.exc.ProgrammingError) as raised:
            connection.execute(orders.select())
        assert raised.value.connection_invalidated
    assert names(engine) == []


def test_pre_ping_replaces_a_closed_connection(engine, connect_to):
    """With `pool_pre_ping`, a connection that died in the pool is not handed out."""
    engine = connect_to(pool_pre_ping=True)
    with engine.connect() as connection:
        dead = connection.connection.dbapi_connection
    dead.close()
    assert names(engine) == []
