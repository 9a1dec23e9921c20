"""The place of the Spark benchmarks: a session of two cores, a database of each kind, and streams of events.

The groups compare eventkit as a source and a sink of Spark with Spark's own for files and databases.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import eventkit

from ..contestants import Contestant, payloads
from ..databases import Postgres, Settings, SQLite, postgres
from ..rounds import Result, contest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = 1_000_000
_BATCH = 5_000
_JARS = (Path("/usr/share/java"), Path.home() / ".m2")


class Stage:
    """A running session, a database of each kind, and a folder."""

    def __init__(self, spark: "SparkSession", settings: Settings, server: Postgres, folder: Path, jdbc: bool) -> None:
        self.spark, self.folder, self.jdbc = spark, folder, jdbc
        self.databases = (SQLite(settings), server)
        self.urls = self.new_urls()
        self.note = f"PySpark {spark.version}, `local[2]`. {server.note}"
        self._filled: set[tuple[str, str]] = set()

    def new_urls(self) -> dict[str, str]:
        """Return the URL of a new database of each kind, with eventkit's tables."""
        urls = {database.name: database.new() for database in self.databases}
        for url in urls.values():
            eventkit.connect(url).close()
        return urls

    def fill(self, topic: str, count: int) -> None:
        """Publish *count* events, each of some 90 bytes, in each database that does not have the topic yet."""
        for url in self.urls.values():
            if (url, topic) not in self._filled:
                self._filled.add((url, topic))
                with eventkit.connect(url) as kit:
                    for begin in range(0, count, _BATCH):
                        kit.stream(topic).publish_many(list(payloads(min(_BATCH, count - begin))))

    def read(self, database: str, **options: Any) -> "DataFrame":
        """Return a topic as a table."""
        return self.spark.read.format("eventkit").options(url=self.urls[database], **options).load()

    def follow(self, database: str, **options: Any) -> "DataFrame":
        """Return a topic as a stream."""
        return self.spark.readStream.format("eventkit").options(url=self.urls[database], **options).load()

    def over_jdbc(self, url: str) -> dict[str, str]:
        """Return the options by which Spark itself connects to a database on Postgres."""
        user, _, place = url.removeprefix("postgresql://").rpartition("@")
        return {"url": f"jdbc:postgresql://{place}", "user": user, "driver": "org.postgresql.Driver"}


@contextmanager
def stage(settings: Settings) -> Iterator[Stage]:
    """Provide a stage, and end the session afterwards."""
    from eventkit.spark import session

    folder = Path(settings.folder("spark"))
    jar = next((str(jar) for place in _JARS for jar in sorted(place.rglob("postgresql-4*.jar"))), None)
    config = {"spark.local.dir": str(folder), "spark.sql.shuffle.partitions": "2"}
    if jar is not None:
        config["spark.jars"] = jar
    with postgres(settings) as server:
        spark = session(master="local[2]", name="benchmarks", config=config)
        try:
            yield Stage(spark, settings, server, folder, jar is not None)
        finally:
            spark.stop()


def drain(frame: "DataFrame") -> None:
    """Compute all rows, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


class _Job(Contestant):
    """A contestant that does one job in this process."""

    def __init__(self, job: Callable[[], object]) -> None:
        self._job = job

    def call(self, method: str, *arguments: Any) -> Any:
        """Call the method, and return its result."""
        return getattr(self, method)(*arguments)

    def run(self, count: int) -> None:
        """Run the job."""
        self._job()


def compare(jobs: Mapping[str, Callable[[], object]], count: int, settings: Settings) -> Result:
    """Return the rates of jobs that have *count* rows each and are complete in a slice, after a warm-up."""
    contestants = {name: _Job(job) for name, job in jobs.items()}
    return contest(contestants, "run", count, rounds=settings.few_rounds, slices=1)
