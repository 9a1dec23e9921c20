"""All events of a topic as one table: those of its archive, and behind them those that only the database has.

The archive says up to which offset it has everything, and which files that is in, at one moment; what follows is read
from the database, up to the head that has settled by now.  So no event is there twice and none is missing, whoever
archives, prunes and publishes meanwhile.  A table whose live part is archived and pruned before it is read fails
(`overtaken`), and is there again when it is made anew.
"""

import json
from typing import TYPE_CHECKING

from ..lake.store import Location
from ..operations.extract import ReadExtent
from ..operations.lake import LakeFile, ReadLake
from ..operations.stream import FindOffset
from ..protocols import Connection
from .complaints import told
from .needs import EVERYTHING, Need
from .offsets import DISORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = {
    "offset": "BIGINT",
    "topic": "STRING",
    "key": "STRING",
    "payload": "STRING",
    "headers": "MAP<STRING, STRING>",
    "created_at": "TIMESTAMP",
}
"""The columns of a topic, as they are stored."""

ATTEMPTS = 5
"""At a query whose events are archived and pruned before it has read them."""


def events(spark: "SparkSession", connection: Connection, url: str, topic: str, need: Need = EVERYTHING) -> "DataFrame":
    """The events of *topic*, or a part of them that has all that *need* names; other columns are NULL."""
    # In this order: whatever is pruned by now was archived before, or is gone for good.
    extent = connection.execute(ReadExtent(topic))
    lake = connection.execute(ReadLake(topic))
    covered = max(lake.covered if lake else 0, extent.pruned_to)
    last = extent.head if need.last is None else min(need.last, extent.head)
    read = [name for name in TYPES if name in need.columns and name != "topic"] or ["offset"]
    schema = ", ".join(f"{name} {TYPES[name]}" for name in read)

    options = {
        "url": url,
        "topic": topic,
        "startingOffsets": str(_begin(connection, topic, max(covered, need.after), need) + 1),
        "endingOffsets": str(last + 1),
    }
    if need.keys:
        options["key"] = json.dumps(need.keys)
    found = spark.read.format("eventkit").options(**options).schema(schema).load()
    if lake and (files := [file.path for file in lake.files if _needed(file, need)]):
        found = _archived(spark, Location(lake.location), files, schema).unionAll(found)
    return found.selectExpr(*(_column(name, kind, read, topic) for name, kind in TYPES.items()))


def _archived(spark: "SparkSession", place: Location, files: list[str], schema: str) -> "DataFrame":
    """The events in files of an archive: those of an object store by Arrow, for which Spark would need other jars."""
    if place.is_remote:
        from .stored import StoredSource

        spark.dataSource.register(StoredSource)
        options = {"location": place.name, "files": json.dumps(files)}
        return spark.read.format(StoredSource.name()).options(**options).schema(schema).load()
    # Spark takes the names of folders for columns, and some characters for patterns, unless an option says otherwise.
    reader = spark.read.schema(schema).option("recursiveFileLookup", True).option("__globPaths__", "false")
    return reader.parquet(*map(place.uri, files))


def overtaken(error: BaseException) -> bool:
    """Whether a query has failed because what it was to read is in the archive now."""
    return "were to be read and are pruned" in told(error)


def _begin(connection: Connection, topic: str, after: int, need: Need) -> int:
    if need.since is None:
        return after
    return max(after, connection.execute(FindOffset(topic, need.since - DISORDER)))


def _needed(file: LakeFile, need: Need) -> bool:
    return (
        file.last > need.after
        and (need.last is None or file.first <= need.last)
        and (need.since is None or file.newest >= need.since)
    )


def _column(name: str, kind: str, read: list[str], topic: str) -> str:
    if name == "topic":
        quoted = topic.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{quoted}' AS topic"
    return name if name in read else f"CAST(NULL AS {kind}) AS {name}"
