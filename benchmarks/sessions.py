"""The cost of events in a SQLAlchemy session: beside another row, and beside one call with all of them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sqlalchemy import create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from eventkit.sqlalchemy import bind, collect, emits

from .contestants import WithKit
from .databases import Database, Settings
from .processes import started
from .report import Table, at_most, ratio
from .rounds import Spread, contest

SIZE = 1000
"""The number of calls collected in one session."""


class Row(NamedTuple):
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


def _order(payload: Any) -> Order:
    return Order(name=payload["to"], total=payload["total"])


Call = Callable[[Any], object]


def _in_session(calls: Callable[[Session], Call], with_row: bool = False) -> Callable[["Application", list[Any]], None]:
    """Return a transaction of one session, with a call for each payload, which may follow the payload's row."""

    def transaction(application: "Application", batch: list[Any]) -> None:
        with application.sessions.begin() as session:
            call = calls(session)
            for payload in batch:
                if with_row:
                    session.add(_order(payload))
                call(payload)

    return transaction


def _publish(session: Session) -> Call:
    return collect(session).stream("orders").publish


def _enqueue(session: Session) -> Call:
    return collect(session).queue("emails").enqueue


def _emit(session: Session) -> Call:
    return lambda payload: session.add(EmittingOrder(name=payload["to"], total=payload["total"]))


TRANSACTIONS: dict[str, Callable[["Application", list[Any]], object]] = {
    "two rows": _in_session(lambda session: lambda payload: session.add(_order(payload)), with_row=True),
    "row and event": _in_session(_publish, with_row=True),
    "row and task": _in_session(_enqueue, with_row=True),
    "row that emits": _in_session(_emit),
    "published": _in_session(_publish),
    "enqueued": _in_session(_enqueue),
    "publish_many": lambda application, batch: application.orders.publish_many(batch),
    "enqueue_many": lambda application, batch: application.emails.enqueue_many(batch),
    "publish_many, tx=": lambda application, batch: application.in_session(application.orders.publish_many, batch),
    "enqueue_many, tx=": lambda application, batch: application.in_session(application.emails.enqueue_many, batch),
}
"""The transactions that commit a batch, by name."""


class Application(WithKit):
    """An application with a kit and an engine on one database, at the kit's durability."""

    def __init__(self, url: str, transaction: str) -> None:
        super().__init__(url)
        self.orders, self.emails = self.kit.stream("orders"), self.kit.queue("emails")
        driver = "sqlite+apsw" if url.startswith("sqlite") else "postgresql+psycopg"
        self._engine = create_engine(f"{driver}:{url.partition(':')[2]}")
        if self._engine.dialect.name == "sqlite":
            event.listen(
                self._engine, "connect", lambda raw, record: raw.cursor().execute("PRAGMA synchronous = NORMAL")
            )
        Base.metadata.create_all(self._engine)
        self.sessions: sessionmaker[Session] = sessionmaker(self._engine)
        bind(self.sessions, self.kit)
        self._transaction = TRANSACTIONS[transaction]

    def commit(self, batch: list[Any]) -> None:
        """Commit a transaction for *batch*."""
        self._transaction(self, batch)

    def in_session(self, many: Callable[..., object], batch: list[Any]) -> None:
        """Call *many* in the transaction of a session."""
        with self.sessions.begin() as session:
            many(batch, tx=session)

    def close(self) -> None:
        """Close both."""
        self._engine.dispose()
        super().close()


def measure(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure the cost of sessions, each with a database of its own."""
    table = Table(
        "SQLAlchemy sessions",
        "transaction | µs | beside, µs | times as long (spread) | bar | reached",
        note="A row and an event are one transaction of one session, which is created for it. A thousand are "
        "collected call by call in one session, and times are for one of them, the calls and the commit together; in "
        "a session, the other call gets `tx=`; otherwise it has no session.",
    )
    for rows, count, size in ((ROWS, 2_000, 1), (MANY, 20_000, SIZE)):
        names = dict.fromkeys(name for row in rows for name in (row.mine, row.theirs))
        factories = {name: (Application, database.new(), name) for name in names}
        with started(factories) as (parties, _):
            rates = contest(parties, "commit", settings.count(count), size, rounds=settings.rounds).rates
        for row in rows:
            times = [theirs / mine for mine, theirs in zip(rates[row.mine], rates[row.theirs], strict=True)]
            spread = Spread.of(times)
            shown = [f"{1e6 / Spread.of(rates[name]).median:,.1f}" for name in (row.mine, row.theirs)]
            table.add(row.title, *shown, ratio(spread), *at_most(spread.median, row.bar))
    yield table
