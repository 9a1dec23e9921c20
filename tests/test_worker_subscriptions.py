"""Subscribers and listeners that a worker runs: J4."""

import asyncio
import threading
import time
from typing import Any

import databases
import msgspec
import pytest
import working
from databases import on_both
from working import until

from eventkit import App, Event, EventKit, Message, Notification, Permanent
from eventkit.conformance import proves

url, kit = databases.url, databases.kit


class Order(msgspec.Struct):
    """The type of the events."""

    id: int


@proves("J4")
@pytest.mark.parametrize("blocking", [False, True])
@on_both
def test_a_subscriber_is_called_with_each_event_in_order(kit: EventKit, url: str, blocking: bool) -> None:
    """It starts at its saved offset; a failed event is retried before the next one comes."""
    app, seen = App(url), list[int]()

    def handle(event: Event[Order]) -> None:
        seen.append(event.payload.id)
        if event.payload.id == 2 and seen.count(2) < 3:
            raise ValueError("not yet")

    async def handle_async(event: Event[Order]) -> None:
        handle(event)

    app.subscriber("orders", consumer="search", max_attempts=3, backoff=[0])(handle if blocking else handle_async)
    orders = kit.stream("orders")
    for id in (1, 2, 3):
        orders.publish({"id": id})
    with working.working(app):
        until(lambda: seen == [1, 2, 2, 2, 3])
        orders.publish({"id": 4})
        until(lambda: seen[-1] == 4)
    assert orders.offset("search") == orders.head()
    orders.publish({"id": 5})
    with working.working(app):
        until(lambda: seen[-1] == 5)
    assert seen == [1, 2, 2, 2, 3, 4, 5]


@proves("J4", "A6")
def test_what_fails_for_good_is_skipped_or_stops_the_consumer(kit: EventKit, url: str) -> None:
    app, seen = App(url), list[Any]()

    @app.subscriber("orders", consumer="skipping", max_attempts=2, backoff=[0], then="skip")
    async def skip(event: Event[Order]) -> None:
        seen.append(("skip", event.payload.id))
        if event.payload.id == 2:
            raise ValueError("never")

    @app.subscriber("orders", consumer="stopping", max_attempts=6)
    def stop(event: Event[Any]) -> None:
        if event.payload["id"] == 2:
            raise Permanent("never")
        seen.append(("stop", event.payload["id"]))

    orders = kit.stream("orders")
    offsets = [orders.publish({"id": id}, headers={"of": "test"}) for id in (1, 2, 3)]
    orders.publish("no order")
    with working.working(app) as worker:
        letters = kit.stream("orders.dead")
        until(lambda: len(letters.read()) == 2)
        until(lambda: worker.metrics.events.of("orders", "stopping", "failed").value == 1)
        until(lambda: orders.offset("skipping") == orders.head())
        time.sleep(0.1)
    first, second = letters.read()
    assert first.payload == {"id": 2}
    assert (first.headers["of"], first.headers["consumer"]) == ("test", "skipping")
    assert first.headers["offset"] == str(offsets[1])
    assert "never" in first.headers["error"]
    assert "SERIALIZATION_ERROR" in second.headers["error"]
    assert [item for item in seen if item[0] == "skip"] == [("skip", 1), ("skip", 2), ("skip", 2), ("skip", 3)]
    assert [item for item in seen if item[0] == "stop"] == [("stop", 1)]
    assert orders.offset("stopping") == offsets[0]
    # Another attempt cannot read the payload either: twice for the second event, and once for the last one.
    assert worker.metrics.events.of("orders", "skipping", "failed").value == 3


@proves("J4")
@on_both
def test_one_worker_at_a_time_follows_for_a_consumer(kit: EventKit, url: str) -> None:
    """When it ends, another goes on."""
    apps, seen = [App(url), App(url)], list[tuple[int, int]]()
    for number, app in enumerate(apps):

        @app.subscriber("orders", consumer="search")
        async def index(event: Event[Any], number: int = number) -> None:
            seen.append((number, event.payload))

    orders = kit.stream("orders")
    with working.working(apps[0]):
        orders.publish(1)
        until(lambda: seen == [(0, 1)])
        second = working.working(apps[1])
        second.__enter__()
        orders.publish(2)
        until(lambda: seen[-1] == (0, 2))
    try:
        orders.publish(3)
        until(lambda: seen[-1] == (1, 3))
    finally:
        second.__exit__(None, None, None)
    assert seen == [(0, 1), (0, 2), (1, 3)]


@proves("J4")
@on_both
def test_listeners_hear_their_channels(kit: EventKit, url: str) -> None:
    app, heard = App(url), list[Any]()
    attached = threading.Event()

    @app.listener("alerts", "news")
    async def hear(notification: Notification[Any]) -> None:
        heard.append((notification.channel, notification.payload))
        if notification.payload == "bad":
            raise ValueError("a listener that fails")
        if notification.payload == "attached":
            attached.set()

    @app.listener("typed")
    def hear_typed(notification: Notification[Order]) -> None:
        heard.append(notification.payload)

    with working.working(app):
        while not attached.wait(0.05):
            kit.channel("alerts").notify("attached")
        kit.channel("news").notify("bad")
        kit.channel("news").notify("good")
        until(lambda: ("news", "good") in heard)
        kit.channel("typed").notify("no order")
        kit.channel("typed").notify({"id": 7})
        until(lambda: Order(7) in heard)


@proves("J4", "O1")
@on_both
def test_a_worker_delivers_outboxes_beside_its_tasks(kit: EventKit, url: str) -> None:
    """They are claimed, retried and counted like tasks; the worker's row and the overview show their queues."""
    app, delivered = App(url), list[Any]()

    @app.outbox("webhooks", ordered=True)
    def deliver(message: Message[Order]) -> None:
        if message.payload.id == 1 and message.attempt < 3:
            raise ConnectionError
        delivered.append((message.payload.id, message.key))

    @app.outbox("mails")
    async def mail(message: Message[Any]) -> None:
        delivered.append(message.payload)
        if message.payload == "lost":
            raise Permanent("no such address")

    @app.task
    def invoice(number: int) -> int:
        kit.outbox("webhooks").add({"id": number}, key="ann")
        return number

    webhooks = kit.outbox("webhooks")
    webhooks.queue.configure(retry=[0])
    with kit.transaction() as tx:
        webhooks.add({"id": 1}, key="ann", tx=tx)
        webhooks.add({"id": 2}, key="ann", tx=tx)
        handle = app.kit.queue("default").enqueue({"task": "invoice", "args": {"number": 3}}, tx=tx)
    kit.outbox("mails").add("lost")
    with working.working(app, name="w") as worker:
        assert kit.results.wait(handle.id, 30) == 3
        until(lambda: (3, "ann") in delivered)
        until(lambda: kit.overview().queues["outbox:mails"].dead == 1)
        assert [row.queues for row in kit.workers()] == [["default", "outbox:mails", "outbox:webhooks"]]
        count = worker.metrics.ended.of
        until(lambda: count("outbox:webhooks", "deliver", "succeeded").value == 3)
        assert count("outbox:webhooks", "deliver", "retried").value == 2
        assert count("outbox:mails", "mail", "dead").value == 1
    assert [item for item in delivered if item != "lost"] == [(1, "ann"), (2, "ann"), (3, "ann")]
    assert kit.overview().queues["outbox:webhooks"].dead == 0
    app.close()


@proves("J5", "O1")
@pytest.mark.parametrize("blocking", [False, True])
@on_both
def test_a_delivery_ends_before_its_worker(kit: EventKit, url: str, blocking: bool) -> None:
    """A stopped worker lets it end, and releases claimed messages; one for other queues delivers none."""
    app, begun, done = App(url), threading.Event(), list[Any]()

    def deliver(message: Message[int]) -> None:
        begun.set()
        time.sleep(0.5)
        done.append(message.payload)

    async def deliver_async(message: Message[int]) -> None:
        await asyncio.to_thread(deliver, message)

    app.outbox("mails")(deliver if blocking else deliver_async)
    for number in (1, 2):
        kit.outbox("mails").add(number)
    with working.working(app, concurrency=1, prefetch=1):
        assert begun.wait(30)
    assert done == [1]
    assert [(task.payload, task.state, task.attempt) for task in kit.queue("outbox:mails").tasks()] == [(2, "ready", 0)]
    with working.working(app, queues=["default"]):
        time.sleep(0.3)
    assert kit.queue("outbox:mails").stats().ready == 1


@proves("J4", "J5", "O1")
@on_both
def test_deliveries_run_in_the_slots_of_the_worker(kit: EventKit, url: str) -> None:
    """Several run at once, but of one key in order one after the other; `until_empty` waits for them, and for hooks."""
    app, running, most, ends = App(url), list[int](), list[list[int]](), list[int]()

    @app.outbox("calls", ordered=True)
    async def call(any_name: Message[int]) -> None:
        running.append(any_name.payload)
        await asyncio.sleep(0.3)
        most.append(sorted(running))
        running.remove(any_name.payload)
        ends.append(any_name.payload)
        if any_name.payload == 4:
            await asyncio.to_thread(note.enqueue, 1)

    @app.outbox("mistakes")
    def forgotten(message: Message[int]) -> Any:
        return asyncio.sleep(0)

    @app.on_success
    def enqueue_again(ctx: Any, result: Any) -> None:
        time.sleep(0.2)
        if ctx.task.payload["args"]["left"]:
            note.enqueue(0)

    @app.task
    def note(left: int) -> None:
        ends.append(-left)

    for number, key in enumerate(("ann", "bob", None, "ann"), 1):
        kit.outbox("calls").add(number, key=key)
    kit.outbox("mistakes").add(0)
    app.worker(until_empty=True, concurrency=3).run()
    assert most[0] == [1, 2, 3]
    assert (ends[3:], kit.overview().queues["outbox:calls"].ready) == ([4, -1, 0], 0)
    assert [task.code for task in kit.queue("outbox:mistakes").tasks("scheduled")] == ["TypeError"]
    app.close()


@proves("J4", "S13")
@on_both
def test_a_group_has_any_number_of_workers_in_order_for_each_key(kit: EventKit, url: str) -> None:
    """A failed event is tried again, and goes to the stream of dead events in the end; only its key waits."""
    seen: list[tuple[str | None, int]] = []

    def declared() -> App:
        app = App(url)

        @app.subscriber("orders", group="billing", max_attempts=2, backoff=[0.05])
        def bill(event: Event[Order]) -> None:
            seen.append((event.key, event.payload.id))
            if event.payload.id == 3:
                raise ValueError("never")

        return app

    orders = kit.stream("orders")
    with working.working(declared()), working.working(declared()):
        until(lambda: [len(group.members) for group in orders.groups()] == [2])
        for id in range(40):
            orders.publish({"id": id}, key=f"key {id % 4}")
        orders.publish("no order", key="key 0")
        assert orders.drain_group("billing", timeout=30)
    failed, poison = sorted(kit.stream("orders.dead").read(), key=lambda event: int(event.headers["offset"]))
    assert (failed.payload, failed.headers["group"], poison.payload) == ({"id": 3}, "billing", '"no order"')
    assert seen.count(("key 3", 3)) == 2
    for key in range(4):
        of_key = [id for name, id in seen if name == f"key {key}"]
        assert of_key == sorted(of_key)
        assert set(of_key) == set(range(key, 40, 4))


@proves("J4", "S12")
@on_both
def test_a_worker_that_stops_hands_over_after_the_event_in_progress(kit: EventKit, url: str) -> None:
    """The event that was handled meanwhile is not handed out again."""
    seen: list[int] = []
    began, ends = threading.Event(), threading.Event()

    def declared() -> App:
        app = App(url)

        @app.subscriber("orders", group="billing")
        def bill(event: Event[Order]) -> None:
            began.set()
            assert ends.wait(working.PATIENCE)
            seen.append(event.payload.id)

        return app

    orders = kit.stream("orders")
    for id in (0, 1):
        orders.publish({"id": id}, key="key")
    with working.working(declared()) as worker:
        assert began.wait(working.PATIENCE)
        worker.stop()
        time.sleep(0.1)
        ends.set()
    assert seen == [0]
    with working.working(declared()):
        until(lambda: len(seen) >= 2)
    assert seen == [0, 1]


@proves("J4", "S16")
def test_a_group_that_stops_holds_the_partition_until_it_is_resumed(kit: EventKit, url: str) -> None:
    """Other partitions go on, and the event is tried again afterwards."""
    app, seen, broken = App(url), list[int](), threading.Event()
    broken.set()

    @app.subscriber("orders", group="billing", max_attempts=1, then="stop")
    async def bill(event: Event[Order]) -> None:
        if event.payload.id == 0 and broken.is_set():
            raise ValueError("not now")
        seen.append(event.payload.id)

    orders = kit.stream("orders")
    for id in range(6):
        orders.publish({"id": id}, key="broken" if id < 3 else "fine")
    with working.working(app):
        until(lambda: seen == [3, 4, 5])
        until(lambda: [one.state for one in orders.groups()[0].partitions].count("stopped") == 1)
        broken.clear()
        assert orders.resume_group("billing")
        until(lambda: seen == [3, 4, 5, 0, 1, 2])
    assert kit.stream("orders.dead").head() == 0


@proves("A6")
def test_a_subscriber_has_a_consumer_or_a_group(url: str) -> None:
    """Not both, and the choices of `then` differ."""
    app = App(url)
    with pytest.raises(ValueError, match="not both"):
        app.subscriber("orders", consumer="a", group="b")
    with pytest.raises(ValueError, match="not both"):
        app.subscriber("orders")
    with pytest.raises(ValueError, match="dead, stop"):
        app.subscriber("orders", group="b", then="skip")
    with pytest.raises(ValueError, match="stop, skip"):
        app.subscriber("orders", consumer="b", then="dead")
