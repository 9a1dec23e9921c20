"""Options of ``option()``, validated: with the names that Kafka users know, in any case.

An unknown option is refused, because a typo that is ignored reads the wrong data.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from itertools import pairwise
from os import environ
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from .. import checks
from ..codec import LARGEST

TABLES = ("events", "tasks", "dead", "results", "schedules", "consumers")

DISORDER = 60_000
"""Milliseconds by which times may be ordered differently from offsets, with many concurrent publishers."""

COUNTED = 1_000_000
"""The most events ahead that are counted."""

Place = int | str
"""A bound of a range: ``earliest``, ``latest``, or the first offset inside the range, or the first after it."""


@dataclass(frozen=True)
class Address:
    """The location of the database.  Secrets may stay in the environment or in a file of the process that connects."""

    url: str | None = field(default=None, repr=False)
    env: str | None = None
    file: str | None = None

    def resolve(self) -> str:
        """Return the URL."""
        if self.env is not None:
            if self.env not in environ:
                raise ValueError(
                    f"urlEnv names {self.env}, which is not set here: set it on all machines of Spark's processes"
                )
            return environ[self.env].strip()
        if self.file is not None:
            try:
                return Path(self.file).read_text("utf-8").strip()
            except OSError as error:
                raise ValueError(
                    f"urlFile names {self.file}, which cannot be read here ({error.strerror}): "
                    f"put it on all machines of Spark's processes"
                ) from None
        assert self.url is not None
        return self.url


@dataclass(frozen=True)
class Bounds:
    """One end of a range: a place for every topic, a place for each, or a time in milliseconds."""

    place: Place | None = None
    places: Mapping[str, Place] = field(default_factory=dict)
    moment: int | None = None

    @property
    def given(self) -> bool:
        """Whether the options set it."""
        return self.place is not None or bool(self.places) or self.moment is not None


@dataclass(frozen=True)
class ReadOptions:
    """The options of a reader: what to read, the range, and the layout."""

    address: Address
    shared_file: bool = False
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
    include_headers: bool | None = None
    layout: str = "native"
    payload_schema: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Return the options of a reader, or raise ``ValueError``."""
        given = _known(options, READ)
        table = _choice(*TABLES)("table", given.get("table", "events"))
        if table != "events":
            if beside := sorted(set(given) - {*_ADDRESS, "table"}):
                raise ValueError(f"{beside[0]} is for streams, and table={table} is not one: leave one of the two out")
            return cls(**_parsed(given, READ))
        named = [name for name in ("topic", "subscribe", "subscribePattern") if name in given]
        if len(named) != 1:
            raise ValueError(
                f"name what to read by one of topic, subscribe (several, with commas) and subscribePattern, "
                f"not by {' and '.join(named) or 'none'}"
            )
        for side in ("starting", "ending"):
            if f"{side}Offsets" in given and f"{side}Timestamp" in given:
                raise ValueError(f"{side}Offsets and {side}Timestamp both set the same bound: leave one of them out")
        made = cls(**_parsed(given, READ))
        if made.layout == "kafka" and made.payload_schema is not None:
            raise ValueError("payloadSchema is for layout=native: Kafka's has the payload as bytes, in value")
        return made

    @property
    def headers(self) -> bool:
        """Whether there is a column of headers; Kafka's layout has one on request."""
        return self.layout == "native" if self.include_headers is None else self.include_headers


@dataclass(frozen=True)
class WriteOptions:
    """The options of a writer: the target, and the handling of rows that cannot be written."""

    address: Address
    shared_file: bool = False
    topic: str | None = None
    queue: str | None = None
    write_id: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    quarantine: str | None = None
    layout: str = "native"

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Return the options of a writer, or raise ``ValueError``."""
        given = _known(options, WRITE)
        if "topic" in given and "queue" in given:
            raise ValueError("topic publishes events and queue enqueues tasks: leave one of the two out")
        if ("txnAppId" in given) != ("txnVersion" in given):
            raise ValueError("txnAppId and txnVersion name a write together: give both, or a writeId")
        if "writeId" in given and "txnAppId" in given:
            raise ValueError(
                "writeId names a single write, txnAppId and txnVersion one of several whose versions rise: "
                "leave one of the two out"
            )
        made = cls(**_parsed(given, WRITE))
        if made.layout == "kafka" and made.queue is not None:
            raise ValueError("layout=kafka is for topics: write to a queue with the columns of layout=native")
        return made

    @property
    def target(self) -> str:
        """The target of the rows, for messages."""
        if self.queue is not None:
            return f"queue {self.queue!r}"
        return "the topics of the rows" if self.topic is None else f"topic {self.topic!r}"

    @property
    def max_payload(self) -> int:
        """The maximum size of a payload in bytes of JSON text, as the URL sets it."""
        return int(dict(parse_qsl(urlsplit(self.address.resolve()).query)).get("max_payload", LARGEST))


Options = TypeVar("Options", ReadOptions, WriteOptions)


def address_of(given: Mapping[str, str]) -> Address:
    """Return the address of the database in options with their documented names."""
    named = [name for name in ("url", "urlEnv", "urlFile") if name in given]
    if len(named) != 1:
        raise ValueError(
            f"name the database by one of url, as in sqlite:////data/shop.db or postgresql://host/shop, urlEnv (the "
            f"name of a variable with it) and urlFile (of a file with it), not by {' and '.join(named) or 'none'}"
        )
    return Address(given.get("url"), given.get("urlEnv"), given.get("urlFile"))


def check_shared(options: Options) -> Options:
    """Return the options, or raise if tasks may run on other machines and the database is a file on this one."""
    url, master = options.address.resolve(), _master()
    local = master is None or re.fullmatch(r"local(\[.*\])?", master)
    if url.startswith("sqlite") and not options.shared_file and not local:
        raise ValueError(
            f"an SQLite file is on one machine, and the workers of {master} may be on others: use Postgres, or, where "
            f"every worker sees the file under the same path, set option sharedFile to true"
        )
    return options


def _master() -> str | None:
    """Return the master of the Spark driver that started this process; None if no command line names it.

    Spark does not pass it to its Python processes; those that plan are descendants of the driver's Java.
    """
    process = os.getpid()
    while process > 1:
        try:
            arguments = Path(f"/proc/{process}/cmdline").read_text("utf-8", "replace").split("\0")
            process = int(Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
        except OSError:
            return None
        if "org.apache.spark.deploy.SparkSubmit" in arguments:
            return master_of(arguments)
    return None


def master_of(arguments: Sequence[str]) -> str | None:
    """Return the master that the arguments of spark-submit name."""
    prefix = "spark.master="
    found = [after for name, after in pairwise(arguments) if name == "--master"]
    found += [after.removeprefix(prefix) for _, after in pairwise(arguments) if after.startswith(prefix)]
    return found[0] if found else None


Parser = Callable[[str, str], Any]
"""A function of an option's name and its text."""


def _known(options: Mapping[str, str], table: Mapping[str, Any]) -> dict[str, str]:
    """Return the options by their documented names, from any case."""
    documented = {name.lower(): name for name in table}
    given = {}
    for name, value in options.items():
        if name.lower() not in documented:
            close = get_close_matches(name.lower(), documented, n=1)
            hint = f"did you mean {documented[close[0]]}?" if close else f"there are {', '.join(table)}"
            raise ValueError(f"eventkit has no option {name}: {hint}")
        given[documented[name.lower()]] = value
    address_of(given)
    return given


def _parsed(given: Mapping[str, str], table: "Mapping[str, tuple[str, Parser]]") -> dict[str, Any]:
    fields = {table[name][0]: table[name][1](name, value) for name, value in given.items() if table[name][0]}
    return {**fields, "address": address_of(given)}


def _text(name: str, value: str) -> str:
    return value


def _topics(name: str, value: str) -> tuple[str, ...]:
    topics = [value] if name == "topic" else [one.strip() for one in value.split(",")]
    return tuple(dict.fromkeys(checks.name("topic", topic) for topic in topics))


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{name} must be a regular expression, not {value!r}: {error}") from None
    return value


def _choice(*choices: str) -> Parser:
    def parse(name: str, value: str) -> str:
        if value.lower() not in choices:
            close = get_close_matches(value.lower(), choices, n=1)
            hint = f": did you mean {close[0]}?" if close else ""
            raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}{hint}")
        return value.lower()

    return parse


def _flag(name: str, value: str) -> bool:
    return bool(_choice("true", "false")(name, value) == "true")


def _count(least: int) -> Parser:
    def parse(name: str, value: str) -> int:
        try:
            return checks.count(name, int(value), least=least)
        except ValueError:
            raise ValueError(f"{name} is a whole number from {least}, not {value!r}") from None

    return parse


def _duration(name: str, value: str) -> float:
    """Return seconds, from a number with a unit; a number without one is milliseconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*", value)
    if match is None:
        raise ValueError(f"{name} is a duration such as 500ms, 30s, 15m or 1h, not {value!r}")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, None: 0.001}[match[2]]


def _moment(name: str, value: str) -> Bounds:
    """Return a bound from a time with its zone, or from milliseconds since 1970."""
    if value.strip().isdecimal():
        return Bounds(moment=int(value))
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError(
            f"{name} must be a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970, not {value!r}"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{name}={value} has no time zone: write {value}Z, or {value}+01:00")
    return Bounds(moment=checks.moment(name, moment))


def _places(name: str, value: str) -> Bounds:
    text = value.strip()
    if not text.startswith("{"):
        return Bounds(_place(name, text))
    try:
        places = json.loads(text)
    except ValueError:
        raise ValueError(f'{name} is not JSON: write it as in {{"orders": 100, "payments": "earliest"}}') from None
    return Bounds(
        places={
            checks.name("topic", topic): _place(f"{name} of {topic}", str(place)) for topic, place in places.items()
        }
    )


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


_ADDRESS: dict[str, tuple[str, Parser]] = {
    "url": ("", _text),
    "urlEnv": ("", _text),
    "urlFile": ("", _text),
    "sharedFile": ("shared_file", _flag),
}

READ: dict[str, tuple[str, Parser]] = {
    **_ADDRESS,
    "table": ("table", _choice(*TABLES)),
    "topic": ("topics", _topics),
    "subscribe": ("topics", _topics),
    "subscribePattern": ("pattern", _pattern),
    "startingOffsets": ("starting", _places),
    "endingOffsets": ("ending", _places),
    "startingTimestamp": ("starting", _moment),
    "endingTimestamp": ("ending", _moment),
    "key": ("keys", _keys),
    "consumer": ("consumer", checks.name),
    "maxOffsetsPerTrigger": ("max_offsets", _count(1)),
    "minOffsetsPerTrigger": ("min_offsets", _count(1)),
    "maxTriggerDelay": ("max_delay", _duration),
    "minPartitions": ("min_partitions", _count(1)),
    "maxRecordsPerPartition": ("max_records", _count(1)),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "lowLatency": ("low_latency", _flag),
    "includeHeaders": ("include_headers", _flag),
    "layout": ("layout", _choice("native", "kafka")),
    "payloadSchema": ("payload_schema", _text),
}
"""The options of a reader: the field that each one sets, if any, and its parser."""

WRITE: dict[str, tuple[str, Parser]] = {
    **_ADDRESS,
    "topic": ("topic", checks.name),
    "queue": ("queue", checks.name),
    "writeId": ("write_id", checks.name),
    "txnAppId": ("txn_app_id", checks.name),
    "txnVersion": ("txn_version", _count(0)),
    "quarantine": ("quarantine", _text),
    "layout": ("layout", _choice("native", "kafka")),
    # Spark's own options, which it passes on.
    "checkpointLocation": ("", _text),
    "queryName": ("", _text),
}
"""The options of a writer, in the same form."""
