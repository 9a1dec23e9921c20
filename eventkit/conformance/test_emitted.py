"""Mapped classes as sources of events (C4)."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import delete, event, exc, insert, select, update

from eventkit import EventKit
from eventkit.sqlalchemy import emits

from .clauses import proves
from .collecting import collecting, events, topic
from .emitting import Account, Entry, Shape, Transfer
from .orders import Order, opened, placed

AT = datetime(2026, 5, 4, 12, 30)


def emitted(kit: EventKit, name: str) -> list[tuple[str, Any]]:
    """Return the change and payload of each event of a topic."""
    return [(event.headers["change"], event.payload) for event in kit.stream(name).read()]


def get(session: Any, model: Any) -> Any:
    """Return the only object of a class."""
    return session.execute(select(model)).scalars().one()


@proves("C4")
def test_a_row_is_an_event_of_its_commit(kit: EventKit, engine: Any) -> None:
    """Inserts, updates and deletes are events with the values set by the database, invisible before the commit."""
    with collecting(engine, kit) as session:
        session.add(Account(name="ann"))
        session.flush()
        assert emitted(kit, "accounts") == []
        session.commit()
        account = get(session, Account)
        session.add(Entry(account=account, amount=Decimal("1.50"), at=AT))
        account.name = "bob"
        session.commit()
        account = get(session, Account)
        session.expire(account, ["name"])
        session.delete(account)
        session.commit()
    (_, first), (_, second), (_, third) = emitted(kit, "accounts")
    assert [change for change, _ in emitted(kit, "accounts")] == ["insert", "update", "delete"]
    assert datetime.fromisoformat(first.pop("opened")).year >= 2026
    id = first["id"]
    assert (first, second["name"], second["entries"]) == ({"id": id, "name": "ann", "entries": 0}, "bob", 1)
    assert (third["id"], third["name"]) == (id, "bob")
    assert [event.key for event in kit.stream("accounts").read()] == ["ann", "bob", "bob"]
    assert emitted(kit, "gone") == [("delete", "bob")]
    assert [event.key for event in kit.stream("gone").read()] == [str(id)]


@proves("C4")
def test_the_default_payload_of_a_row_has_its_columns(kit: EventKit, engine: Any) -> None:
    """The payload has the attributes' names, without deferred ones, and a typed handle can decode it."""

    @dataclass
    class Row:
        id: UUID
        account_id: int
        kind: str
        amount: Decimal
        at: datetime | None
        to: str | None = None

    with collecting(engine, kit) as session:
        account = Account(name="ann")
        entry = Entry(account=account, amount=Decimal("1.50"), at=AT, scan="long")
        session.add(entry)
        session.flush()
        session.add(Transfer(account=account, amount=Decimal(7), at=None, to="bob"))
        session.flush()
        id, account_id = entry.id, account.id
        session.commit()
    first, second = kit.stream("entries", type=Row).read()
    assert first.payload == Row(id, account_id, "entry", Decimal("1.50"), AT)
    assert first.key == str(id)
    assert (second.payload.kind, second.payload.to, second.payload.at) == ("transfer", "bob", None)
    raw = kit.stream("entries").read(limit=1)[0].payload
    assert set(raw) == {"id", "account_id", "kind", "amount", "at"}
    assert raw["at"] == "2026-05-04T12:30:00"


@proves("C4")
def test_an_update_counts_if_a_column_has_changed(kit: EventKit, engine: Any) -> None:
    """An object touched without a change, or changed only beside the row, emits none; each flush of the row does."""
    with collecting(engine, kit) as session:
        session.add(Account(name="ann"))
        session.commit()
        account = get(session, Account)
        account.name = "ann"
        session.commit()
        account = get(session, Account)
        account.name, account.note = "bob", None
        account.name = "ann"
        session.commit()
        _load(session, account)
        account.entries.append(Entry(amount=Decimal(1), at=None))
        session.commit()
        assert [change for change, _ in emitted(kit, "accounts")] == ["insert"]
        account.note = "one"
        session.flush()
        account.note = "two"
        session.commit()
        account.name = Account.name + "e"
        session.commit()
    assert [(change, payload["name"]) for change, payload in emitted(kit, "accounts")[1:]] == [
        ("update", "ann"),
        ("update", "ann"),
        ("update", "anne"),
    ]
    assert [change for change, _ in emitted(kit, "entries")] == ["insert"]


@proves("C4")
def test_what_a_listener_of_the_flush_changes_counts(kit: EventKit, engine: Any) -> None:
    """A row that is written only because of the listener is an event too."""

    def stamp(mapper: Any, connection: Any, account: Any) -> None:
        account.note = "stamped"

    with collecting(engine, kit) as session:
        session.add(Account(name="ann"))
        session.commit()
        account = get(session, Account)
        event.listen(Account, "before_update", stamp)
        try:
            account.name = "bob"
            account.name = "ann"
            session.commit()
        finally:
            event.remove(Account, "before_update", stamp)
    assert [change for change, _ in emitted(kit, "accounts")] == ["insert", "update"]
    assert emitted(kit, "notes") == [("update", "stamped")]


@proves("C4")
def test_a_mixin_and_a_parent_declare_for_their_subclasses(kit: EventKit, engine: Any) -> None:
    """Each declaration makes an event of its own."""
    with collecting(engine, kit) as session:
        account = Account(name="ann", note="first")
        session.add(account)
        session.flush()
        account.note = "second"
        transfer = Transfer(account=account, amount=Decimal(7), at=AT, to="bob")
        session.add(transfer)
        session.flush()
        transfer.to = "cy"
        session.commit()
        session.delete(get(session, Transfer))
        session.commit()
    assert [(event.payload, event.key, event.headers) for event in kit.stream("notes").read()] == [
        ("second", None, {"change": "update"})
    ]
    assert [(change, payload["to"]) for change, payload in emitted(kit, "entries")] == [
        ("insert", "bob"),
        ("update", "cy"),
        ("delete", "cy"),
    ]


@proves("C4")
def test_an_object_deleted_by_a_cascade_emits_an_event(kit: EventKit, engine: Any) -> None:
    """A cascade of the session or an orphan, expired or not, emits too."""
    with collecting(engine, kit) as session:
        account = Account(name="ann")
        account.entries = [Entry(amount=Decimal(n), at=None) for n in (1, 2)]
        session.add(account)
        session.commit()
        [orphan] = [entry for entry in _entries(session) if entry.amount == 1]
        account = get(session, Account)
        _load(session, account)
        account.entries.remove(orphan)
        session.commit()
        session.delete(get(session, Account))
        session.commit()
    deleted = [Decimal(payload["amount"]) for change, payload in emitted(kit, "entries") if change == "delete"]
    assert deleted == [1, 2]


def _entries(session: Any) -> list[Any]:
    return list(session.execute(select(Entry)).scalars())


def _load(session: Any, account: Any) -> None:
    session.refresh(account, ["entries"])


@proves("C2", "C4")
def test_rows_and_calls_are_in_one_order(kit: EventKit, engine: Any) -> None:
    """A flush emits between the events published before and after it, in the order in which it writes."""
    with collecting(engine, kit) as session:
        topic(session, "accounts").publish("first", headers={"change": "none"})
        session.add_all([Account(name=name) for name in ("b", "a")])
        session.flush()
        topic(session, "accounts").publish("then", headers={"change": "none"})
        account = Account(name="c")
        session.add(account)
        topic(session, "accounts").publish("before the flush", headers={"change": "none"})
        session.commit()
    names = [payload if change == "none" else payload["name"] for change, payload in emitted(kit, "accounts")]
    assert names == ["first", "b", "a", "then", "before the flush", "c"]


@proves("C2", "C4")
def test_a_row_that_is_not_committed_is_no_event(kit: EventKit, engine: Any) -> None:
    """A rollback, a close, a savepoint and a flush that fails in the middle discard the event."""
    with collecting(engine, kit) as session:
        session.add(Account(name="lost"))
        session.flush()
        session.rollback()
        session.add(Account(name="lost"))
        session.flush()
        session.close()
        session.add(Account(name="ann"))
        savepoint = session.begin_nested()
        session.add(Account(name="lost"))
        session.flush()
        savepoint.rollback()
        savepoint = session.begin_nested()
        session.add(Account(name="bob"))
        savepoint.commit()
        savepoint = session.begin_nested()
        session.add(Account(name="lost", entries=[Entry(amount=None, at=None)]))
        with pytest.raises(exc.IntegrityError):
            session.flush()
        savepoint.rollback()
        session.add(Account(name="cy"))
        transaction = session.begin_nested()
        session.commit()
        assert transaction is not None
    assert [payload["name"] for _, payload in emitted(kit, "accounts")] == ["ann", "bob", "cy"]
    assert emitted(kit, "entries") == []


@proves("C4")
def test_only_the_flush_of_objects_emits_events(kit: EventKit, engine: Any) -> None:
    """Bulk statements emit no events, and neither does a class that declares nothing."""
    with collecting(engine, kit) as session:
        session.execute(insert(Account).values(name="ann"))
        session.execute(insert(Account), [{"name": "bob"}])
        session.execute(update(Account).values(note="changed"))
        session.execute(delete(Account).where(Account.name == "ann"))
        session.add(Order(name="ann"))
        session.commit()
    assert [placed(engine), *(emitted(kit, name) for name in ("accounts", "notes", "gone"))] == [["ann"], [], [], []]


@proves("C3", "C4")
def test_a_payload_that_cannot_be_encoded_fails_the_flush(kit: EventKit, engine: Any) -> None:
    """The error names the class and the remedy; an exception raised by payload= itself propagates unchanged."""
    with collecting(engine, kit) as session:
        for shape in (float("nan"), object(), "x" * 600_000, {1: "one"}):
            row: Any = Shape(name="bad")
            row.shape = shape
            session.add(row)
            with pytest.raises((ValueError, TypeError), match=r"Shape cannot be published to 'shapes': .* payload="):
                session.commit()
            session.rollback()
        row = Shape(name="good")
        row.shape = {"at": AT, "of": (Decimal("1.5"), UUID(int=5))}
        session.add(row)
        session.commit()
        session.add(Account(name="control\x07"))
        with pytest.raises(ValueError, match="Account cannot be published to 'accounts': the name of a key"):
            session.commit()
        session.rollback()
        names = session.execute(select(Shape.name)).scalars().all()
    assert list(names) == ["good"]
    assert emitted(kit, "shapes") == [("insert", {"at": AT.isoformat(), "of": ["1.5", str(UUID(int=5))]})]
    assert events(kit, "accounts") == []


@proves("C4")
def test_a_session_without_a_kit_writes_no_such_row(kit: EventKit, engine: Any) -> None:
    """The row would lack its event; the session may change rows that emit nothing."""
    with opened(engine) as session:
        session.add(Account(name="ann"))
        with pytest.raises(ValueError, match=r"bind\(Session, kit\)"):
            session.commit()
        session.rollback()
        session.execute(insert(Account).values(name="ann"))
        account = get(session, Account)
        account.name = "bob"
        account.name = "ann"
        session.commit()
        assert session.execute(select(Account.name)).scalars().all() == ["ann"]


@proves("C4", "G10")
def test_a_declaration_is_checked_where_it_stands() -> None:
    """Its topic and its changes are checked; one change may be given as a string."""
    for topic_name, on in (("", ("insert",)), ("control\x07", ("insert",)), ("t", ("inserted",)), ("t", "insertion")):
        with pytest.raises(ValueError, match=r"name of a stream|on is one of insert, update, delete"):
            emits(topic_name, on=on)  # type: ignore[arg-type]
    emits("t", on="insert")
