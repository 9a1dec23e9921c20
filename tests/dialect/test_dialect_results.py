"""Rows, counts and ids come back from `sqlite+apsw://` and `sqlite+apsw_async://` as SQLAlchemy promises them."""

import datetime

import pytest
import sqlalchemy as sa
from shop import Order, names, orders
from sqlalchemy import orm


def test_an_empty_result_still_has_columns(engine):
    """A query that finds no rows has the columns it would have returned."""
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
    """An ORM update of many objects raises StaleDataError if one is gone."""
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
    """A file written with `sqlite://` can be read with this dialect, and the other way round."""
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
