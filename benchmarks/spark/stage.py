"""The resources of the Spark benchmarks: a session, a database of each kind, and streams of events."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import eventkit
from eventkit.spark import session

from ..payloads import payloads
from ..postgres.server import serving
from ..settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = 1_000_000
_BATCH = 5_000
_JARS = (Path("/usr/share/java"), Path.home() / ".m2")


class Stage(NamedTuple):
    """A running session, the URL of an empty database of each kind, and a folder."""

    spark: "SparkSession"
    urls: dict[str, str]
    folder: Path
    note: str
    jdbc: bool

    def read(self, database: str, **options: Any) -> "DataFrame":
        """Return a topic as a table."""
        return self.spark.read.format("eventkit").options(url=self.urls[database], **options).load()

    def follow(self, database: str, **options: Any) -> "DataFrame":
        """Return a topic as a stream."""
        return self.spark.readStream.format("eventkit").options(url=self.urls[database], **options).load()

    def over_jdbc(self) -> dict[str, str]:
        """Return the options by which Spark itself connects to the database on Postgres."""
        user, _, place = self.urls["Postgres"].removeprefix("postgresql://").rpartition("@")
        return {"url": f"jdbc:postgresql://{place}", "user": user, "driver": "org.postgresql.Driver"}


@contextmanager
def staged(settings: Settings, name: str) -> Iterator[Stage]:
    """Provide a stage, and end the session afterwards."""
    folder = Path(settings.folder(name))
    jar = next((str(jar) for place in _JARS for jar in sorted(place.rglob("postgresql-4*.jar"))), None)
    config = {"spark.local.dir": str(folder), "spark.sql.shuffle.partitions": "2"}
    if jar is not None:
        config["spark.jars"] = jar
    with serving(settings) as server:
        urls = {"SQLite": f"sqlite:///{folder}/kit.db", "Postgres": server.new_database()}
        spark = session(master="local[2]", name=name, config=config)
        try:
            note = f"PySpark {spark.version}, `local[2]`. {server.note}"
            yield Stage(spark, urls, folder, note, jar is not None)
        finally:
            spark.stop()


def fill(url: str, topic: str, count: int) -> None:
    """Publish *count* events, each of some 90 bytes."""
    with eventkit.connect(url) as kit:
        stream = kit.stream(topic)
        for begin in range(0, count, _BATCH):
            stream.publish_many(list(payloads(min(_BATCH, count - begin))))


def drain(frame: "DataFrame") -> None:
    """Compute all rows, and discard them."""
    frame.write.format("noop").mode("overwrite").save()
