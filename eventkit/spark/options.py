"""What stands in ``option()``, checked: names as Kafka's users know them, in whatever case.

An option that nobody knows is refused, because a typo that is ignored reads the wrong data.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from os import environ
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from .. import arguments
from ..codec import LARGEST

Place = int | str
"""Where a range begins or ends: ``earliest``, ``latest``, or the offset that is the first, or the first no more."""

TABLES = ("events", "tasks", "dead", "results", "schedules", "consumers")


@dataclass(frozen=True)
class Address:
    """Where the database is.  What is secret about it can stay where it is used: in the environment, or in a file."""

    url: str | None = field(default=None, repr=False)
    env: str | None = None
    file: str | None = None

    def resolve(self) -> str:
        """The URL."""
        if self.env is not None:
            if self.env not in environ:
                raise ValueError(
                    f"urlEnv names {self.env}, which is not set here: set it wherever Spark's processes run"
                )
            return environ[self.env].strip()
        if self.file is not None:
            try:
                return Path(self.file).read_text("utf-8").strip()
            except OSError as error:
                raise ValueError(
                    f"urlFile names {self.file}, which cannot be read here ({error.strerror}): "
                    f"put it wherever Spark's processes run"
                ) from None
        assert self.url is not None
        return self.url


@dataclass(frozen=True)
class Bounds:
    """One end of what is read: a place for every topic, a place for each, or a moment in milliseconds."""

    place: Place | None = None
    places: Mapping[str, Place] = field(default_factory=dict)
    moment: int | None = None

    @property
    def given(self) -> bool:
        """Whether anything was said about it."""
        return self.place is not None or bool(self.places) or self.moment is not None


@dataclass(frozen=True)
class ReadOptions:
    """What to read, from where to where, and in which form."""

    address: Address
    table: str = "events"
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    starting: Bounds = Bounds()
    ending: Bounds = Bounds()
    keys: tuple[str, ...] = ()
    consumer: str | None = None
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay: float = 900.0
    min_partitions: int | None = None
    max_records: int | None = None
    fail_on_data_loss: bool = True
    low_latency: bool = False
    headers: bool = True
    layout: str = "native"
    payload_schema: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """The options of a reader, or ``ValueError``."""
        given = known(options, _READ)
        address = address_of(given)
        table = _choice("table", given.get("table", "events"), TABLES)
        if table != "events":
            if beside := sorted(set(given) - {"url", "urlEnv", "urlFile", "table"}):
                raise ValueError(f"{beside[0]} is for streams, and table={table} is none: leave one of the two out")
            return cls(address, table)
        named = [name for name in ("topic", "subscribe", "subscribePattern") if name in given]
        if len(named) != 1:
            raise ValueError(
                f"name what to read by one of topic, subscribe (several, with commas) and subscribePattern, "
                f"not by {' and '.join(named) or 'none'}"
            )
        layout = _choice("layout", given.get("layout", "native"), ("native", "kafka"))
        read = {name: _READ[name](name, given[name]) for name in given if _READ[name] is not _text}
        if layout == "kafka" and "payloadSchema" in given:
            raise ValueError("payloadSchema is for layout=native: Kafka's has the payload as bytes, in value")
        return cls(
            address,
            table,
            topics=_topics(named[0], given[named[0]]) if named != ["subscribePattern"] else (),
            pattern=read.get("subscribePattern"),
            starting=_bounds("starting", read),
            ending=_bounds("ending", read),
            keys=read.get("key", ()),
            consumer=read.get("consumer"),
            max_offsets=read.get("maxOffsetsPerTrigger"),
            min_offsets=read.get("minOffsetsPerTrigger"),
            max_delay=read.get("maxTriggerDelay", 900.0),
            min_partitions=read.get("minPartitions"),
            max_records=read.get("maxRecordsPerPartition"),
            fail_on_data_loss=read.get("failOnDataLoss", True),
            low_latency=read.get("lowLatency", False),
            headers=read.get("includeHeaders", layout == "native"),
            layout=layout,
            payload_schema=given.get("payloadSchema"),
        )


@dataclass(frozen=True)
class WriteOptions:
    """Where to write what, and what becomes of rows that cannot be written."""

    address: Address
    topic: str | None = None
    queue: str | None = None
    write_id: str | None = None
    quarantine: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """The options of a writer, or ``ValueError``."""
        given = known(options, _WRITE)
        if "topic" in given and "queue" in given:
            raise ValueError("topic publishes events and queue enqueues tasks: leave one of the two out")
        read = {name: _WRITE[name](name, given[name]) for name in given}
        return cls(address_of(given), read.get("topic"), read.get("queue"), read.get("writeId"), read.get("quarantine"))

    @property
    def max_payload(self) -> int:
        """The most bytes of JSON text that a payload may have, as the URL says."""
        return int(dict(parse_qsl(urlsplit(self.address.resolve()).query)).get("max_payload", LARGEST))


def known(options: Mapping[str, str], names: Mapping[str, Any]) -> dict[str, str]:
    """The options by the names that are documented, whatever their case."""
    documented = {name.lower(): name for name in names}
    given = {}
    for name, value in options.items():
        if name.lower() not in documented:
            close = get_close_matches(name.lower(), documented, n=1)
            hint = f"did you mean {documented[close[0]]}?" if close else f"there are {', '.join(names)}"
            raise ValueError(f"eventkit has no option {name}: {hint}")
        given[documented[name.lower()]] = value
    return given


def address_of(given: Mapping[str, str]) -> Address:
    """Where the options say that the database is."""
    named = [name for name in ("url", "urlEnv", "urlFile") if name in given]
    if len(named) != 1:
        raise ValueError(
            f"name the database by one of url, as in sqlite:////data/shop.db or postgresql://host/shop, urlEnv (the "
            f"name of a variable with it) and urlFile (of a file with it), not by {' and '.join(named) or 'none'}"
        )
    return Address(given.get("url"), given.get("urlEnv"), given.get("urlFile"))


def _bounds(side: str, read: Mapping[str, Any]) -> Bounds:
    offsets, moment = read.get(f"{side}Offsets"), read.get(f"{side}Timestamp")
    if offsets is not None and moment is not None:
        raise ValueError(f"{side}Offsets and {side}Timestamp say the same thing twice: leave one of them out")
    if isinstance(offsets, dict):
        return Bounds(places=offsets)
    return Bounds(place=offsets, moment=moment)


def _text(name: str, value: str) -> str:
    return value


def _topics(name: str, value: str) -> tuple[str, ...]:
    topics = [value] if name == "topic" else [one.strip() for one in value.split(",")]
    return tuple(dict.fromkeys(arguments.name("topic", topic) for topic in topics))


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{name} is a regular expression, and {value!r} is none: {error}") from None
    return value


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        close = get_close_matches(value.lower(), choices, n=1)
        hint = f": did you mean {close[0]}?" if close else ""
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}{hint}")
    return value.lower()


def _flag(name: str, value: str) -> bool:
    return _choice(name, value, ("true", "false")) == "true"


def _count(name: str, value: str) -> int:
    try:
        return arguments.count(name, int(value), least=1)
    except ValueError:
        raise ValueError(f"{name} is a whole number from 1, not {value!r}") from None


def _duration(name: str, value: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*", value)
    if match is None:
        raise ValueError(f"{name} is a duration such as 500ms, 30s, 15m or 1h, not {value!r}")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, None: 0.001}[match[2]]


def _moment(name: str, value: str) -> int:
    if value.strip().isdecimal():
        return int(value)
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError(
            f"{name} is a moment such as 2026-01-31T12:00:00Z, or milliseconds since 1970, not {value!r}"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{name}={value} has no time zone: write {value}Z, or {value}+01:00")
    return arguments.moment(name, moment)


def _places(name: str, value: str) -> Place | dict[str, Place]:
    text = value.strip()
    if not text.startswith("{"):
        return _place(name, text)
    try:
        places = json.loads(text)
    except ValueError:
        raise ValueError(f'{name} is not JSON: write it as in {{"orders": 100, "payments": "earliest"}}') from None
    return {arguments.name("topic", topic): _place(f"{name} of {topic}", str(place)) for topic, place in places.items()}


def _place(name: str, text: str) -> Place:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.isdecimal():
        return int(text)
    raise ValueError(
        f'{name} is earliest, latest, an offset, or JSON as in {{"orders": 100, "payments": "earliest"}}, not {text!r}'
    )


def _keys(name: str, value: str) -> tuple[str, ...]:
    if not value.startswith("["):
        return (value,)
    try:
        keys = json.loads(value)
    except ValueError:
        keys = None
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise ValueError(f'{name} is one key, or several as JSON, as in ["42", "43"], not {value!r}')
    return tuple(keys)


def _name(name: str, value: str) -> str:
    return arguments.name(name, value)


_READ: dict[str, Callable[[str, str], Any]] = {
    "url": _text,
    "urlEnv": _text,
    "urlFile": _text,
    "table": _text,
    "topic": _text,
    "subscribe": _text,
    "subscribePattern": _pattern,
    "startingOffsets": _places,
    "endingOffsets": _places,
    "startingTimestamp": _moment,
    "endingTimestamp": _moment,
    "key": _keys,
    "consumer": _name,
    "maxOffsetsPerTrigger": _count,
    "minOffsetsPerTrigger": _count,
    "maxTriggerDelay": _duration,
    "minPartitions": _count,
    "maxRecordsPerPartition": _count,
    "failOnDataLoss": _flag,
    "lowLatency": _flag,
    "includeHeaders": _flag,
    "layout": _text,
    "payloadSchema": _text,
}
"""Every option of a reader, and how it is read."""

_WRITE: dict[str, Callable[[str, str], Any]] = {
    "url": _text,
    "urlEnv": _text,
    "urlFile": _text,
    "topic": _name,
    "queue": _name,
    "writeId": _name,
    "quarantine": _text,
    # Spark's own, which it hands on.
    "checkpointLocation": _text,
    "queryName": _text,
}
"""Every option of a writer, and how it is read."""
