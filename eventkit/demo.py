"""A demonstration of the library's purpose: ``python -m eventkit.demo``.

One process puts a row, an event, a task and a notification into a file, in one SQLAlchemy transaction; a second
process, which sleeps, receives them a moment after the commit.  Then the same with a rollback: nothing arrives.

``python -m eventkit.demo listen`` and ``python -m eventkit.demo order tea`` are the two halves, for two terminals.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from sqlalchemy import Engine, MetaData, create_engine, func, inspect, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import eventkit

FILE = "shop.db"
PATIENCE = 10.0
"""The seconds to wait for an item."""

Report = Callable[[float, str, Any], object]
"""Called with the time of arrival, the kind of an item, and its payload."""


class Base(DeclarativeBase):
    metadata = MetaData()


class Order(Base):
    """The application's own table."""

    __tablename__ = "demo_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


def place(kit: eventkit.EventKit, engine: Engine, item: str, fails: bool = False) -> float:
    """Store an order with its event, task and notification, or none of them; return the time before the commit."""
    orders, emails, alerts = kit.stream("orders"), kit.queue("emails"), kit.channel("alerts")
    with Session(engine) as session, session.begin():
        order = Order(item=item)
        session.add(order)
        session.flush()
        orders.publish({"order": order.id, "item": item}, tx=session)
        emails.enqueue({"to": "ann@example.com", "order": order.id}, tx=session)
        alerts.notify({"new": item}, tx=session)
        if fails:
            raise RuntimeError("the card was declined")
        return time.time()


def consume(kit: eventkit.EventKit, report: Report) -> list[threading.Thread]:
    """Report every event, task and notification, until the kit is closed."""
    events = kit.stream("orders").subscribe("demo")
    tasks = kit.queue("emails")
    alerts = kit.channel("alerts").listen()

    def follow() -> None:
        for event in events:
            report(time.time(), "event", event.payload)

    def work() -> None:
        for task in tasks.work("demo"):
            arrived = time.time()
            with tasks.handling(task):
                pass
            report(arrived, "task", task.payload)

    def listen() -> None:
        for alert in alerts:
            report(time.time(), "notification", alert.payload)

    threads = [threading.Thread(target=target) for target in (follow, work, listen)]
    for thread in threads:
        thread.start()
    return threads


def second_process(url: str, pipe: Any) -> None:
    """Consume until the pipe ends it."""
    with eventkit.connect(url) as kit:
        threads = consume(kit, lambda *news: pipe.send(news))
        pipe.send(None)
        pipe.recv()
    for thread in threads:
        thread.join()


def tour(url: str, engine: Engine) -> int:
    """Run both processes, with one transaction that commits, and one that does not."""
    process_context = get_context("spawn")
    pipe, their_pipe = process_context.Pipe()
    process = process_context.Process(target=second_process, args=(url, their_pipe), daemon=True)
    process.start()
    with eventkit.connect(url) as kit:
        _receive(pipe)
        while pipe.poll(0.3):
            pipe.recv()  # Items left by an earlier, interrupted run.
        print(f"\n  One file, {FILE}, and two processes: this one, and {process.pid}, which waits.\n")
        print(_COMMIT)
        committed = place(kit, engine, "tea")
        print(f"     Process {process.pid} received, counted from COMMIT:\n")
        for _ in range(3):
            arrived, kind, payload = _receive(pipe)
            print(f"         {kind:<14}{payload!s:<42}{1000 * (arrived - committed):6.1f} ms")

        before = _count(engine)
        print(_ROLLBACK)
        try:
            place(kit, engine, "a castle", fails=True)
        except RuntimeError as error:
            print(f"     RuntimeError: {error}")
        if pipe.poll(0.5):
            sys.exit(f"received {pipe.recv()}, which was never committed")
        print(f"     Process {process.pid} received nothing, and the tables hold what they held:\n")
        print(f"         before   {before}\n         after    {_count(engine)}")
        pipe.send(None)
        process.join(PATIENCE)
    print(_NEXT.format(python=_python()))
    return 0


def listen(url: str) -> int:
    """Print what arrives until interrupted."""

    def report(arrived: float, kind: str, payload: Any) -> None:
        moment = time.strftime("%H:%M:%S", time.localtime(arrived))
        print(f"{moment}.{int(arrived % 1 * 1000):03}  {kind:<14}{payload}", flush=True)

    with eventkit.connect(url) as kit:
        consume(kit, report)
        print("waiting for orders, emails and alerts; Ctrl-C ends it", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


def main(arguments: list[str]) -> int:
    """Run the tour, or one half of it."""
    url = f"sqlite:///{FILE}"
    engine = create_engine(f"sqlite+apsw:///{FILE}")
    if os.path.exists(FILE) and not inspect(engine).has_table(Order.__tablename__):
        return _refuse(f"{os.path.abspath(FILE)} is not the demo's: run it in another folder")
    Base.metadata.create_all(engine)
    match arguments:
        case []:
            return tour(url, engine)
        case ["listen"]:
            return listen(url)
        case ["order", item]:
            with eventkit.connect(url) as kit:
                place(kit, engine, item)
            return 0
    return _refuse("usage: python -m eventkit.demo [listen | order ITEM]")


def _receive(pipe: Any) -> Any:
    if not pipe.poll(PATIENCE):
        sys.exit("the second process does not answer")
    return pipe.recv()


def _count(engine: Engine) -> str:
    counted = ("demo_order", "eventkit_event", "eventkit_task", "eventkit_notification")
    tables = MetaData()
    tables.reflect(engine, only=counted)
    with engine.connect() as connection:
        numbers = [connection.scalar(select(func.count()).select_from(tables.tables[name])) for name in counted]
    return "orders {}   events {}   tasks {}   notifications {}".format(*numbers)


def _python() -> str:
    """Return the interpreter as a user would type it here."""
    near = os.path.relpath(sys.executable)
    return sys.executable if near.startswith("..") else near


def _refuse(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 2


_COMMIT = """\
  1  A row, an event, a task and a notification, in one transaction of the
     application's own SQLAlchemy session:

         with Session(engine) as session, session.begin():
             session.add(Order(item="tea"))
             orders.publish({"item": "tea"}, tx=session)
             emails.enqueue({"to": "ann@example.com"}, tx=session)
             alerts.notify({"new": "tea"}, tx=session)
"""

_ROLLBACK = """
  2  The same once more, and an error before the commit:
"""

_NEXT = """
  Try next, in this folder.  One terminal waits:

    {python} -m eventkit.demo listen

  and another one sends it work, with eventkit or without:

    {python} -m eventkit.demo order coffee

    {python} -m apsw shop.db "INSERT INTO eventkit_event \\
        (topic, payload) VALUES ('orders', '\\"written in plain SQL\\"')"

  What has happened so far can be read again:

    {python} -c 'from eventkit import connect; \\
        print(*connect("sqlite:///shop.db").stream("orders").read(), sep="\\n")'
"""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
