"""Functions that other processes run in the tests of streams and channels."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import eventkit
from eventkit.operations.consumer_group import partition_of as partition_of

from .flavours import Blocking, Loop
from .threads import PATIENCE, eventually, rolled_back

GO = "conformance: go"
"""The topic whose first event tells all processes to begin."""

END = "conformance: end"
"""The last payload that a publisher sends."""

Step = tuple[str, int]
"""A place in the work on an event: the name of the place, and the event's payload."""


def transaction(kit: Any, *, commit: bool) -> Any:
    """Run the body in a transaction that is committed at the end, or rolled back."""
    return kit.transaction() if commit else rolled_back(kit)


@contextmanager
def kit_on(url: str, flavour: str) -> Iterator[Any]:
    """Return a kit of the flavour, which looks like a sync one."""
    if flavour == "sync":
        with eventkit.connect(url) as kit:
            yield kit
        return
    loop = Loop()
    try:
        kit = Blocking(loop.run(eventkit.connect_async(url)), loop)
        try:
            yield kit
        finally:
            kit.close()
    finally:
        loop.close()


def go(kit: Any) -> None:
    """Let all processes begin that wait for the start signal."""
    kit.stream(GO).publish(None)


def wait_for_go(kit: Any) -> None:
    """Wait until the test calls `go`."""
    eventually(kit.stream(GO).head)


def until_end(messages: Any) -> list[Any]:
    """Yield the messages before the one whose payload is `END`."""
    received: list[Any] = []
    for message in messages:
        if message.payload == END:
            break
        received.append(message)
    return received


def send_in_transactions(url: str, flavour: str, kind: str, writer: int, transactions: int) -> list[list[int]]:
    """Send to the stream or channel ``raced`` in all supported ways; return the committed payloads.

    Some transactions stay open for a while, some are rolled back, as a whole or to a savepoint, and some
    publish to many topics.
    """
    chance = random.Random(writer)
    committed: list[list[int]] = []
    number = 0

    def payloads(count: int) -> list[list[int]]:
        nonlocal number
        number += count
        return [[writer, n] for n in range(number - count, number)]

    with kit_on(url, flavour) as kit:
        stream = kit.stream("raced")
        send = stream.publish if kind == "stream" else kit.channel("raced").notify
        wait_for_go(kit)
        for _ in range(transactions):
            way = chance.random()
            if way < 0.3:
                sent = payloads(1)
                send(sent[0])
            elif way < 0.4 and kind == "stream":
                sent = payloads(3)
                stream.publish_many(sent)
            else:
                sent = payloads(chance.randint(1, 4))
                with transaction(kit, commit=way <= 0.8) as tx:
                    for payload in sent:
                        if chance.random() < 0.2:
                            tx.execute("SAVEPOINT inner_part")
                            send([writer, -1], tx=tx)
                            tx.execute("ROLLBACK TO SAVEPOINT inner_part")
                            tx.execute("RELEASE SAVEPOINT inner_part")
                        send(payload, tx=tx)
                        time.sleep(chance.random() * 0.002)
                        for side in range(40 if chance.random() < 0.02 else 0):
                            kit.stream(f"side {side}").publish(None, tx=tx)
            if way <= 0.8:
                committed += sent
            if chance.random() < 0.3:
                time.sleep(chance.random() * 0.002)
    return committed


def publish_numbers(url: str, flavour: str, topic: str, count: int) -> None:
    """Publish the numbers below *count*, one by one, and then `END`."""
    with kit_on(url, flavour) as kit:
        stream = kit.stream(topic)
        wait_for_go(kit)
        for n in range(count):
            stream.publish(n)
            if n % 50 == 0:
                time.sleep(0.001)
        stream.publish(END)


def publish_and_prune(url: str, flavour: str, topic: str, count: int) -> list[int]:
    """Publish *count* events, prune all but the newest at intervals, and publish `END`; return the offsets."""
    offsets: list[int] = []
    with kit_on(url, flavour) as kit:
        stream = kit.stream(topic)
        wait_for_go(kit)
        while len(offsets) < count:
            offsets += stream.publish_many(range(20))
            time.sleep(0.002)
            if len(offsets) % 60 == 0:
                stream.prune(keep_count=5)
        stream.publish(END)
    return offsets


def publish_same_ids(url: str, flavour: str, writer: int, ids: int, rollbacks: bool) -> dict[str, int]:
    """Publish the same dedup ids as the other processes, in another order; return the offset of each id."""
    chance = random.Random(writer)
    names = [f"id {n}" for n in range(ids)]
    chance.shuffle(names)
    offsets: dict[str, int] = {}
    with kit_on(url, flavour) as kit:
        stream = kit.stream("deduplicated")
        wait_for_go(kit)
        for name in names:
            if rollbacks and chance.random() < 0.5:
                with rolled_back(kit) as tx:
                    stream.publish([writer, name, "rolled back"], dedup=name, tx=tx)
            offsets[name] = stream.publish([writer, name], dedup=name)
    return offsets


def consume(url: str, flavour: str, topic: str, options: dict[str, Any], until: int, pipe: Connection) -> None:
    """Subscribe as ``consumer``; send the payloads handled, and block in the body of the event *until*."""
    with kit_on(url, flavour) as kit, kit.stream(topic).subscribe("consumer", **options) as events:
        for event in events:
            pipe.send(event.payload)
            if event.payload == until:
                time.sleep(PATIENCE)


def copy_exactly_once(url: str, flavour: str, stop: Step | None, pipe: Connection) -> None:
    """Copy new events of ``source`` to ``effect``, row and offset in one transaction; block at *stop* for ever."""

    def reach(place: str) -> None:
        if stop == (place, event.payload):
            pipe.send(stop)
            time.sleep(PATIENCE)

    with kit_on(url, flavour) as kit:
        stream, inbox = kit.stream("source"), kit.inbox("copier")
        with stream.subscribe("copier", save_every_n=0, save_every_s=0, exclusive=False) as events:
            for event in events:
                if event.payload == END:
                    return
                reach("received")
                with kit.transaction() as tx:
                    reach("begun")
                    if inbox.once(event.headers["message-id"], tx=tx):
                        reach("seen")
                        tx.execute(f"INSERT INTO effect (n) VALUES ({event.payload})")
                    reach("written")
                    stream.save_offset("copier", event.offset, tx=tx)
                    reach("saved")
                reach("committed")


def take_part(url: str, flavour: str, topic: str, options: dict[str, Any], until: int, pipe: Connection) -> None:
    """Join the group ``workers``; send the keys and payloads handled, and block in the body of the event *until*."""
    with kit_on(url, flavour) as kit, kit.stream(topic).join("workers", **options) as member:
        for event in member:
            if event.payload == END:
                member.retry(event, delay=PATIENCE)
                pipe.send(END)
                continue
            pipe.send((event.key, event.payload))
            if event.payload == until:
                time.sleep(PATIENCE)
