"""Options of ``option()``, validated: with the names that Kafka users know, in any case.

An unknown option is refused, because a typo that is ignored reads the wrong data.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from os import environ
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from ..codec import LARGEST
from . import values
from .values import Place

TABLES = ("events", "tasks", "dead", "results", "schedules", "consumers")


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
    headers: bool = True
    layout: str = "native"
    payload_schema: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Return the options of a reader, or raise ``ValueError``."""
        given = known(options, READ)
        address = address_of(given)
        table = values.choice("table", given.get("table", "events"), TABLES)
        if table != "events":
            if beside := sorted(set(given) - {"url", "urlEnv", "urlFile", "sharedFile", "table"}):
                raise ValueError(f"{beside[0]} is for streams, and table={table} is not one: leave one of the two out")
            return cls(address, values.flag("sharedFile", given.get("sharedFile", "false")), table)
        named = [name for name in ("topic", "subscribe", "subscribePattern") if name in given]
        if len(named) != 1:
            raise ValueError(
                f"name what to read by one of topic, subscribe (several, with commas) and subscribePattern, "
                f"not by {' and '.join(named) or 'none'}"
            )
        layout = values.choice("layout", given.get("layout", "native"), ("native", "kafka"))
        read = {name: READ[name](name, given[name]) for name in given if READ[name] is not values.text}
        if layout == "kafka" and "payloadSchema" in given:
            raise ValueError("payloadSchema is for layout=native: Kafka's has the payload as bytes, in value")
        return cls(
            address,
            read.get("sharedFile", False),
            table,
            topics=values.topics(named[0], given[named[0]]) if named != ["subscribePattern"] else (),
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
    """The options of a writer: the target, and the handling of rows that cannot be written."""

    address: Address
    shared_file: bool = False
    topic: str | None = None
    queue: str | None = None
    write_id: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    quarantine: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Return the options of a writer, or raise ``ValueError``."""
        given = known(options, WRITE)
        if "topic" in given and "queue" in given:
            raise ValueError("topic publishes events and queue enqueues tasks: leave one of the two out")
        if ("txnAppId" in given) != ("txnVersion" in given):
            raise ValueError("txnAppId and txnVersion name a write together: give both, or a writeId")
        if "writeId" in given and "txnAppId" in given:
            raise ValueError(
                "writeId names a single write, txnAppId and txnVersion one of several whose versions rise: "
                "leave one of the two out"
            )
        read = {name: WRITE[name](name, given[name]) for name in given}
        return cls(
            address_of(given),
            read.get("sharedFile", False),
            read.get("topic"),
            read.get("queue"),
            read.get("writeId"),
            read.get("txnAppId"),
            read.get("txnVersion"),
            read.get("quarantine"),
        )

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


def known(options: Mapping[str, str], names: Mapping[str, Any]) -> dict[str, str]:
    """Return the options by their documented names, from any case."""
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
    """Return the address of the database in the options."""
    named = [name for name in ("url", "urlEnv", "urlFile") if name in given]
    if len(named) != 1:
        raise ValueError(
            f"name the database by one of url, as in sqlite:////data/shop.db or postgresql://host/shop, urlEnv (the "
            f"name of a variable with it) and urlFile (of a file with it), not by {' and '.join(named) or 'none'}"
        )
    return Address(given.get("url"), given.get("urlEnv"), given.get("urlFile"))


def check_shared(options: ReadOptions | WriteOptions) -> None:
    """Raise `ValueError` if tasks may run on other machines and the database is a file on this one."""
    url, master = options.address.resolve(), _master()
    local = master is None or re.fullmatch(r"local(\[.*\])?", master)
    if url.startswith("sqlite") and not options.shared_file and not local:
        raise ValueError(
            f"an SQLite file is on one machine, and the workers of {master} may be on others: use Postgres, or, where "
            f"every worker sees the file under the same path, set option sharedFile to true"
        )


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
    found = [after for name, after in pairwise(arguments) if name == "--master"]
    prefix = "spark.master="
    found += [after.removeprefix(prefix) for _, after in pairwise(arguments) if after.startswith(prefix)]
    return found[0] if found else None


def _bounds(side: str, read: Mapping[str, Any]) -> Bounds:
    offsets, moment = read.get(f"{side}Offsets"), read.get(f"{side}Timestamp")
    if offsets is not None and moment is not None:
        raise ValueError(f"{side}Offsets and {side}Timestamp both set the same bound: leave one of them out")
    if isinstance(offsets, dict):
        return Bounds(places=offsets)
    return Bounds(place=offsets, moment=moment)


READ: dict[str, Callable[[str, str], Any]] = {
    "url": values.text,
    "urlEnv": values.text,
    "urlFile": values.text,
    "sharedFile": values.flag,
    "table": values.text,
    "topic": values.text,
    "subscribe": values.text,
    "subscribePattern": values.pattern,
    "startingOffsets": values.places,
    "endingOffsets": values.places,
    "startingTimestamp": values.moment,
    "endingTimestamp": values.moment,
    "key": values.keys,
    "consumer": values.name,
    "maxOffsetsPerTrigger": values.count,
    "minOffsetsPerTrigger": values.count,
    "maxTriggerDelay": values.duration,
    "minPartitions": values.count,
    "maxRecordsPerPartition": values.count,
    "failOnDataLoss": values.flag,
    "lowLatency": values.flag,
    "includeHeaders": values.flag,
    "layout": values.text,
    "payloadSchema": values.text,
}
"""The options of a reader, with the function that parses each."""

WRITE: dict[str, Callable[[str, str], Any]] = {
    "url": values.text,
    "urlEnv": values.text,
    "urlFile": values.text,
    "sharedFile": values.flag,
    "topic": values.name,
    "queue": values.name,
    "writeId": values.name,
    "txnAppId": values.name,
    "txnVersion": values.version,
    "quarantine": values.text,
    # Spark's own options, which it passes on.
    "checkpointLocation": values.text,
    "queryName": values.text,
}
"""The options of a writer, with the function that parses each."""
