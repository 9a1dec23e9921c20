"""The cost of events in a SQLAlchemy session: beside another row, and beside one call with all of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import eventkit
from eventkit.sqlalchemy import bind, collect, emits

from .payloads import payloads
from .processes import Remote
from .report import Table, ratio, verdict
from .rounds import SLICES, Contestant, Result, Spread, contest
from .settings import Settings

SIZE = 1000
"""The number of calls collected in one session."""


class Row(msgspec.Struct, frozen=True):
    """A transaction, the one it is compared with, and the largest accepted ratio of their times."""

    title: str
    mine: str
    theirs: str
    bar: float | None


ROWS = (
    Row("a row and an event, beside two rows", "row and event", "two rows", 1.25),
    Row("a row and a task, beside two rows", "row and task", "two rows", 1.25),
    Row("a row that emits, beside two rows", "row that emits", "two rows", 1.25),
)
MANY = (
    Row("1,000 events published, beside enqueue_many(1000)", "published", "enqueue_many", 1.5),
    Row("1,000 events published, beside publish_many(1000) in a session", "published", "publish_many, tx=", 1.5),
    Row("1,000 tasks enqueued, beside enqueue_many(1000) in a session", "enqueued", "enqueue_many, tx=", 1.5),
    Row("1,000 events published, beside publish_many(1000)", "published", "publish_many", None),
    Row("1,000 tasks enqueued, beside enqueue_many(1000)", "enqueued", "enqueue_many", None),
)


class Base(DeclarativeBase):
    """The application's models."""


class Order(Base):
    """An ordinary row."""

    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    total: Mapped[float]


@emits("orders", on=("insert",))
class EmittingOrder(Base):
    """The same row, which emits events."""

    __tablename__ = "shop_emitting_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    total: Mapped[float]


class Application(Contestant):
    """An application with a kit and an engine on one database, at the kit's durability."""

    def __init__(self, kit_url: str, engine_url: str, transaction: str) -> None:
        self._kit = eventkit.connect(kit_url)
        self._engine = create_engine(engine_url)
        if self._engine.dialect.name == "sqlite":
            _be_as_durable_as_the_kit(self._engine)
        Base.metadata.create_all(self._engine)
        self._sessions: sessionmaker[Session] = sessionmaker(self._engine)
        bind(self._sessions, self._kit)
        self._transaction: Callable[[list[Any]], None] = getattr(self, "_" + transaction)
        self._each = 1 if transaction.startswith(("two", "row")) else SIZE

    def commit(self, count: int) -> None:
        """Commit *count* payloads, as many per transaction as it is for."""
        source = payloads(count)
        while batch := list(islice(source, self._each)):
            self._transaction(batch)

    def close(self) -> None:
        """Close both."""
        self._engine.dispose()
        self._kit.close()

    def _two_rows(self, batch: list[Any]) -> None:
        with self._sessions.begin() as session:
            session.add(_order(batch[0]))
            session.add(_order(batch[0]))

    def _row_and_event(self, batch: list[Any]) -> None:
        with self._sessions.begin() as session:
            session.add(_order(batch[0]))
            collect(session).stream("orders").publish(batch[0])

    def _row_and_task(self, batch: list[Any]) -> None:
        with self._sessions.begin() as session:
            session.add(_order(batch[0]))
            collect(session).queue("emails").enqueue(batch[0])

    def _row_that_emits(self, batch: list[Any]) -> None:
        with self._sessions.begin() as session:
            session.add(EmittingOrder(name=batch[0]["to"], total=batch[0]["total"]))

    def _published(self, batch: list[Any]) -> None:
        with self._sessions.begin() as session:
            orders = collect(session).stream("orders")
            for payload in batch:
                orders.publish(payload)

    def _enqueued(self, batch: list[Any]) -> None:
        with self._sessions.begin() as session:
            emails = collect(session).queue("emails")
            for payload in batch:
                emails.enqueue(payload)

    def _publish_many(self, batch: list[Any]) -> None:
        self._kit.stream("orders").publish_many(batch)

    def _enqueue_many(self, batch: list[Any]) -> None:
        self._kit.queue("emails").enqueue_many(batch)

    def _publish_many_in_a_session(self, batch: list[Any]) -> None:
        with self._sessions.begin() as session:
            self._kit.stream("orders").publish_many(batch, tx=session)

    def _enqueue_many_in_a_session(self, batch: list[Any]) -> None:
        with self._sessions.begin() as session:
            self._kit.queue("emails").enqueue_many(batch, tx=session)


CONTESTANTS = {
    "two rows": "two_rows",
    "row and event": "row_and_event",
    "row and task": "row_and_task",
    "row that emits": "row_that_emits",
    "published": "published",
    "enqueued": "enqueued",
    "publish_many": "publish_many",
    "enqueue_many": "enqueue_many",
    "publish_many, tx=": "publish_many_in_a_session",
    "enqueue_many, tx=": "enqueue_many_in_a_session",
}
"""The transactions by name."""


def measure(settings: Settings) -> Iterator[Table]:
    """Measure sessions on SQLite."""
    folder = settings.folder("sessions")

    def urls(number: int) -> tuple[str, str]:
        file = f"/{folder}/{number}.db"
        return f"sqlite:///{file}", f"sqlite+apsw:///{file}"

    yield table("SQLAlchemy sessions", urls, settings)


def table(title: str, urls: Callable[[int], tuple[str, str]], settings: Settings, note: str = "") -> Table:
    """Return a table of the cost of sessions on the databases at *urls*, called with a number for each pair."""
    table = Table(
        title,
        ("transaction", "µs", "beside, µs", "times as long (spread)", "bar", "reached"),
        note=f"{note}A row and an event are one transaction of one session, which is created for it. A thousand are "
        "collected call by call in one session, and times are for one of them, the calls and the commit together; in "
        "a session, the other call gets `tx=`; otherwise it has no session.",
    )
    with ExitStack() as stack:
        parties = {
            name: stack.enter_context(Remote(Application, *urls(number), transaction))
            for number, (name, transaction) in enumerate(CONTESTANTS.items())
        }
        for rows, count, unit in ((ROWS, 2_000, 1), (MANY, 20_000, SIZE)):
            names = {name for row in rows for name in (row.mine, row.theirs)}
            able = {name: party for name, party in parties.items() if name in names}
            size = SLICES * unit
            result = contest(able, "commit", max(size, settings.count(count) // size * size), rounds=settings.rounds)
            for row in rows:
                table.add(_cells(row, result))
    return table


def _cells(row: Row, result: Result) -> list[str]:
    rates = result.rates
    times = [theirs / mine for mine, theirs in zip(rates[row.mine], rates[row.theirs], strict=True)]
    spread = Spread.of(times)
    bar = ("–", "–") if row.bar is None else (f"≤ {row.bar}", verdict(spread.median <= row.bar))
    return [row.title, _microseconds(rates, row.mine), _microseconds(rates, row.theirs), ratio(spread), *bar]


def _microseconds(rates: Mapping[str, list[float]], name: str) -> str:
    return f"{1e6 / Spread.of(rates[name]).median:,.1f}"


def _order(payload: Any) -> Order:
    return Order(name=payload["to"], total=payload["total"])


def _be_as_durable_as_the_kit(engine: Any) -> None:
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def set_pragma(connection: Any, record: Any) -> None:
        connection.cursor().execute("PRAGMA synchronous = NORMAL")
