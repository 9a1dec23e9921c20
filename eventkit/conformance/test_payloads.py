"""Payloads: exact storage or refusal (G8); and typed payloads (G9)."""

import base64
import dataclasses
import datetime
import json
import random
import uuid
from collections.abc import Callable
from typing import Any, TypedDict

import msgspec
import pytest

from eventkit import EventKit, NewEvent, NewTask
from eventkit.codec import Undecodable

from .clauses import both_flavours, proves
from .urls import with_options

LIMIT = 524_288


@proves("G9")
def test_bytes_are_payloads(kit: EventKit) -> None:
    """They are stored as text in base64, which handles of other types, plain SQL and Spark read."""
    data = bytes(range(256))
    queue, stream, channel = kit.queue("b", type=bytes), kit.stream("b", type=bytes), kit.channel("b", type=bytes)
    with channel.listen() as heard:
        channel.notify(data)
        assert next(heard).payload == data
    stream.publish_many([data, b""])
    assert [event.payload for event in stream.read()] == [data, b""]
    queue.enqueue_many([data, NewTask(b"", key="k")])
    assert {task.payload for task in queue.claim("worker", 2)} == {data, b""}
    assert kit.stream("b").read()[0].payload == base64.b64encode(data).decode()
    wrong: Any
    for wrong in ("abcd", 1, None):
        with pytest.raises(TypeError, match="the payload is not"):
            queue.enqueue(wrong)


EXACT: list[Any] = [
    None,
    True,
    0,
    -1,
    2**53 + 1,
    -(2**63),
    2**63 - 1,
    2**128 + 1,
    0.0,
    -0.0,
    1e308,
    5e-324,
    0.1 + 0.2,
    1.0,
    "",
    "\u0000",
    "a\u0000b",
    "\u2028\ufeff\x7f",
    "🦊 e\u0301 \u00e9",
    "\"quoted\" 'quoted' \\ %s :name ?1 $1 {}",
    [],
    {},
    [[], {}, [None]],
    {"z": 1, "a": 2, "m": {"z": 1, "a": 2}},
    {"": "empty", "\u0000": "nul", "🦊": "fox", "a b": 1},
    {"null": None, "NaN": "NaN", "Infinity": ["null"]},
]

REFUSED: list[Any] = [
    float("nan"),
    float("inf"),
    -float("inf"),
    [1, {"deep": [float("nan")]}],
    (1, float("inf")),
    "\ud800",
    {"\udfff": 1},
    ["ok", {"a": "\ud83e"}],
    {1: "int key"},
    {None: 1},
    datetime.datetime.now(datetime.UTC),
    {"at": datetime.date(2020, 1, 1)},
    b"bytes",
    {1, 2},
    uuid.UUID(int=1),
    object(),
    [len],
    1j,
]


def _nested(depth: int) -> Any:
    value: Any = []
    for level in range(depth - 1):
        value = [value] if level % 2 else {"a": value}
    return value


def _written(kit: EventKit) -> tuple[int, int, int]:
    """Return how many events, tasks and notifications there are."""
    with kit.channel("c").listen(start="earliest") as notifications:
        kit.channel("c").notify("end")
        sent = 0
        while next(notifications).payload != "end":
            sent += 1
    return len(kit.stream("t").read()), kit.queue("q").size(), sent


def _random_value(source: random.Random, depth: int = 0) -> Any:
    kind = source.randrange(8 if depth < 4 else 6)
    if kind == 0:
        return source.choice([None, True, False])
    if kind == 1:
        return source.randrange(-(2 ** source.randrange(1, 64)), 2 ** source.randrange(1, 64))
    if kind == 2:
        return source.choice([source.random(), source.uniform(-1e300, 1e300), source.uniform(-1e-300, 1e-300)])
    if kind < 6:
        characters = [source.choice((source.randrange(0xD800), source.randrange(0xE000, 0x110000))) for _ in range(9)]
        return "".join(map(chr, characters[: source.randrange(10)]))
    values = [_random_value(source, depth + 1) for _ in range(source.randrange(5))]
    if kind == 6:
        return values
    return {str(source.random()): value for value in values}


@proves("G8")
@both_flavours
def test_payloads_come_back_exactly(kit: EventKit) -> None:
    """Every JSON value comes back equal as JSON text, from streams, queues and channels."""
    source = random.Random(8)
    values = EXACT + [_random_value(source) for _ in range(200)]
    expected = [json.dumps(value) for value in values]
    stream, queue, channel = kit.stream("t"), kit.queue("q"), kit.channel("c")
    with channel.listen() as notifications:
        for value in values[: len(EXACT)]:
            stream.publish(value)
            queue.enqueue(value)
            channel.notify(value)
        stream.publish_many(values[len(EXACT) :])
        queue.enqueue_many(values[len(EXACT) :])
        heard = [json.dumps(next(notifications).payload) for _ in EXACT]
    assert heard == expected[: len(EXACT)]
    assert [json.dumps(event.payload) for event in stream.read()] == expected
    assert [json.dumps(info.payload) for info in queue.tasks(limit=1000)] == expected
    assert [json.dumps(task.payload) for task in queue.claim("w", 1000)] == expected


@proves("G8")
def test_what_is_not_json_is_refused_before_anything_is_written(kit: EventKit) -> None:
    """Every call refuses values that JSON cannot carry exactly, with the whole batch."""
    stream, queue, channel = kit.stream("t"), kit.queue("q"), kit.channel("c")
    deep = [_nested(65), _nested(500), _nested(20_000)]
    for value in [*REFUSED, *deep, "x" * (LIMIT - 1)]:
        calls: list[Callable[[Any], Any]] = [
            stream.publish,
            lambda value: stream.publish(value, dedup="d"),
            lambda value: stream.publish_many(["good", value]),
            lambda value: stream.publish_many(["good", NewEvent(value)]),
            queue.enqueue,
            lambda value: queue.enqueue(value, key="k"),
            lambda value: queue.enqueue_many(["good", value]),
            lambda value: queue.enqueue_many(["good", NewTask(value)]),
            channel.notify,
        ]
        for call in calls:
            with pytest.raises((ValueError, TypeError)):
                call(value)
    assert _written(kit) == (0, 0, 0)


@proves("G8")
def test_depth_and_size_are_bounded_where_the_contract_says(kit: EventKit) -> None:
    """64 levels and 524,288 bytes of JSON text are accepted, one more is not; bytes count, not characters."""
    stream = kit.stream("t")
    for value in (_nested(64), "x" * (LIMIT - 2), "é" * (LIMIT // 2 - 1), [[0]] * 1000):
        stream.publish(value)
    with pytest.raises(ValueError, match="64"):
        stream.publish(_nested(65))
    with pytest.raises(ValueError, match=r"524,289.*max_payload"):
        stream.publish("x" * (LIMIT - 1))
    with pytest.raises(ValueError, match="max_payload"):
        stream.publish("é" * (LIMIT // 2))
    payloads = [event.payload for event in stream.read()]
    assert payloads == [_nested(64), "x" * (LIMIT - 2), "é" * (LIMIT // 2 - 1), [[0]] * 1000]


@proves("G8")
def test_the_size_limit_can_be_set(connect: Callable[..., Any], url: str) -> None:
    """``max_payload`` in the URL moves the limit, in both directions."""
    small = connect(with_options(url, max_payload=10)).stream("t")
    small.publish("x" * 8)
    with pytest.raises(ValueError, match="11 bytes"):
        small.publish("x" * 9)
    large = connect(with_options(url, max_payload=2_000_000)).stream("t")
    large.publish("x" * 1_000_000)
    assert [len(event.payload) for event in large.read()] == [8, 1_000_000]


@proves("G8", "N2")
def test_a_long_notification_arrives(kit: EventKit) -> None:
    """Notifications of every size arrive, and in the same way."""
    with kit.channel("c").listen() as notifications:
        for size in (7_990, 8_000, 9_000, 250_000):
            kit.channel("c").notify("ä" * size)
            assert next(notifications).payload == "ä" * size


@dataclasses.dataclass
class _Email:
    to: str
    cc: list[str] = dataclasses.field(default_factory=list)
    sent: datetime.datetime | None = None


class _Letter(msgspec.Struct):
    to: str
    pages: int = 1


class _Card(TypedDict):
    to: str
    stamps: int


class _Envelope(msgspec.Struct):
    content: msgspec.Raw


_TYPED: list[tuple[Any, Any, Any]] = [
    (_Email, _Email("ann", ["bob"], datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)), {"to": 5}),
    (_Letter, _Letter("ann", 3), {"pages": 2}),
    (_Card, {"to": "ann", "stamps": 2}, {"to": "ann", "stamps": "two"}),
]


@proves("G9")
@pytest.mark.parametrize(("type", "value", "bad"), _TYPED, ids=["dataclass", "Struct", "TypedDict"])
def test_a_type_is_encoded_and_decoded(kit: EventKit, type: Any, value: Any, bad: Any) -> None:
    """A handle with a type takes and gives values of that type, wherever a payload appears."""
    stream, queue = kit.stream("t", type=type), kit.queue("q", type=type)
    channel = kit.channel("c", type=type)
    with channel.listen() as notifications:
        stream.publish(value)
        stream.publish_many([value, NewEvent(value, key="k")])
        queue.enqueue(value)
        queue.enqueue_many([value, NewTask(value, priority=-1)])
        channel.notify(value)
        assert next(notifications).payload == value
    assert [event.payload for event in stream.read()] == [value] * 3
    with stream.subscribe() as events:
        assert next(events).payload == value
    assert [info.payload for info in queue.peek(3)] == [value] * 3
    [task] = queue.receive()
    assert task.payload == value
    tasks = queue.claim("w", 2)
    assert [task.payload for task in tasks] == [value] * 2
    info = queue.get(tasks[0].id)
    assert info is not None
    assert info.payload == value
    with pytest.raises((TypeError, ValueError)):
        stream.publish(bad)
    assert len(kit.stream("t").read()) == 3


@proves("G9", "G8")
def test_a_batch_of_a_type_is_kept_exactly(kit: EventKit) -> None:
    """Embedded JSON may have line breaks, and small payloads may stand beside large ones."""
    contents = (b"1", b'{"a":\n[2,\n3]}', b'"' + b"x" * 500 + b'"', b"4")
    stream, queue = kit.stream("t", type=_Envelope), kit.queue("q", type=_Envelope)
    for count in (2, 4):
        envelopes = [_Envelope(msgspec.Raw(content)) for content in contents[:count]]
        after = stream.head()
        assert len(stream.publish_many(envelopes)) == count
        assert [event.payload for event in stream.read(after)] == envelopes
        assert len(queue.enqueue_many(envelopes)) == count
        assert [task.payload for task in queue.receive(9)] == envelopes


@proves("G9", "Q14")
@pytest.mark.parametrize(("type", "value", "bad"), _TYPED, ids=["dataclass", "Struct", "TypedDict"])
@both_flavours
def test_a_payload_that_does_not_decode_stops_no_loop(kit: EventKit, type: Any, value: Any, bad: Any) -> None:
    """On a queue it is dead as poison; on a stream or channel it arrives as `Undecodable`, and the rest follows."""
    plain = msgspec.to_builtins(value)
    with kit.channel("c", type=type).listen() as notifications:
        for payload in (plain, bad, plain):
            kit.stream("t").publish(payload)
            kit.queue("q").enqueue(payload)
            kit.channel("c").notify(payload)
        heard = [next(notifications).payload for _ in range(3)]
    with kit.stream("t", type=type).subscribe("consumer", save_every_n=1) as events:
        seen = [next(events).payload for _ in range(3)]
        kit.stream("t").publish(plain)
        assert next(events).payload == value
    for payloads in (heard, seen):
        assert payloads[0] == payloads[2] == value
        assert isinstance(payloads[1], Undecodable)
        assert json.loads(payloads[1].text) == bad
        assert payloads[1].error
    assert kit.stream("t").offset("consumer") == 3
    assert isinstance(kit.stream("t", type=type).read()[1].payload, Undecodable)

    queue = kit.queue("q", type=type)
    with queue.work("w", batch=3) as tasks:
        for _ in range(2):
            with queue.handling(next(tasks)) as task:
                assert task.payload == value
    [dead] = kit.queue("q").dead()
    assert (dead.reason, dead.payload) == ("poison", bad)
    assert dead.error
    assert queue.size() == 0
