"""The time to archive a stream to Parquet, each event once, beside Spark's own file sink, from a cold start."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count as numbers
from pathlib import Path

import eventkit

from ..postgres.server import serving
from ..report import Table, ratio, verdict
from ..settings import Settings
from .stage import EVENTS, fill
from .turns import compare

_BAR = 1.35

_OURS = """
import sys
from eventkit import archive
url, folder = sys.argv[1:]
archive.archive(url, "orders", to=folder)
"""

_SPARKS = """
import sys
from eventkit.spark import session
url, folder = sys.argv[1:]
spark = session(master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
stream = spark.readStream.format("eventkit").options(url=url, topic="orders", startingOffsets="earliest").load()
writer = stream.writeStream.format("parquet").option("compression", "zstd").option("path", folder + "/files")
writer.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def measure(settings: Settings) -> Iterator[Table]:
    """Measure archiving."""
    count = settings.count(EVENTS)
    folder = Path(settings.folder("spark-archive"))
    with serving(settings) as server:
        urls = {"SQLite": f"sqlite:///{folder}/kit.db", "Postgres": server.new_database()}
        table = Table(
            "Archiving to Parquet, from a cold start",
            ("from", "eventkit archive", "Spark's file sink", "bar", "reached", "of the file sink (spread)"),
            note=f"{count:,} events. Each run is a new process: eventkit writes files, "
            f"compacts them and keeps a manifest; Spark writes a file for each part that it reads. {server.note}",
        )
        for database, url in urls.items():
            fill(url, "orders", count)
            result = compare(_jobs(url, folder / database), count, settings)
            ours, sparks = result.rate("eventkit"), result.rate("Spark")
            share = result.ratio("Spark", "eventkit")
            assert ours is not None
            assert sparks is not None
            reached = verdict(sparks / ours <= _BAR)
            table.add(
                [database, f"{count / ours:.1f} s", f"{count / sparks:.1f} s", f"≤ {_BAR}", reached, ratio(share)]
            )
        yield table


def _jobs(url: str, folder: Path) -> dict[str, Callable[[], object]]:
    runs = numbers()

    def run(program: str) -> None:
        command = [sys.executable, "-c", program, url, str(folder / str(next(runs)))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def archive() -> None:
        with eventkit.connect(url) as kit, kit.transaction() as tx:
            schema = "" if url.startswith("sqlite") else "eventkit."
            for name in ("lake", "lake_file", "consumer"):
                tx.execute(f"DELETE FROM {schema}eventkit_{name}")
        run(_OURS)

    return {"eventkit": archive, "Spark": lambda: run(_SPARKS)}
