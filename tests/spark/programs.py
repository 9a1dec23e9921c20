"""Drivers of Spark that are killed, or that are clients of Spark Connect: ``programs.py NAME ARGUMENTS…``.

Each is a process of its own, because a process is a client or has a Java of its own, and never both.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import deadly
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import eventkit
from eventkit.spark import Pipeline, query, session, views


def client() -> SparkSession:
    """Return a session of Spark Connect."""
    # The server that it starts loads and runs its sources by this interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.remote("local[2]").getOrCreate()


def copy_files(url: str, folder: str, checkpoint: str, partitions: str, *fault: str) -> None:
    """Write the rest of the lines of files to a stream, and die at the step of the fault."""
    spark = session(master="local[2]")
    cloudpickle.register_pickle_by_value(deadly)
    spark.dataSource.register(deadly.DeadlySource)
    options = dict(zip(("place", "step", "flag"), fault, strict=False))
    if options:
        options["victim"] = "spark"
    form = "deadly" if options else "eventkit"
    deadly.copy_files(spark, Path(folder), Path(checkpoint), int(partitions), form, url=url, topic="t", **options)
    spark.stop()


def copy_topic(master: str, checkpoint: str, shared_file: str = "true") -> None:
    """Copy the rest of the topic ``orders`` to ``copied``, a few events at a time.

    The environment names the database, here as on the executors.
    """
    database = {"urlEnv": "SHOP_URL", "sharedFile": shared_file}
    config = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.task.maxFailures": "8"}
    spark = session(master=master, config=config)
    reading = {"startingOffsets": "earliest", "consumer": "copy", "maxOffsetsPerTrigger": "40", "minPartitions": "2"}
    stream = spark.readStream.format("eventkit").options(**database, topic="orders", **reading).load()
    written = stream.writeStream.format("eventkit").options(**database, topic="copied")
    running = written.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    print("begins", flush=True)
    running.awaitTermination()
    rows = spark.read.format("eventkit").options(**database, topic="copied", minPartitions="2").load()
    print("ends", rows.count(), flush=True)
    spark.stop()


def read_topic(url: str, folder: str, remote: str) -> None:
    """Read the topic ``orders`` into Parquet files, a few events at a time, until there are no more."""
    spark = client() if remote else session(master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    options = {"topic": "orders", "startingOffsets": "earliest", "consumer": "lake", "maxOffsetsPerTrigger": "20"}
    stream = spark.readStream.format("eventkit").options(url=url, minPartitions="2", **options).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    running = writer.option("path", f"{folder}/out").trigger(availableNow=True).start()
    print("begins", flush=True)
    running.awaitTermination()
    rows = sorted(row.offset for row in spark.read.parquet(f"{folder}/out").select("offset").collect())
    print("ends", *rows, flush=True)
    spark.stop()


def run_queries(url: str, checkpoint: str, *queries: str) -> None:
    """Print the answers to queries, a line of JSON for each, and the batches and rows of a pipeline of live events."""
    spark = client()

    def show(*frames: Any) -> None:
        print(json.dumps([list(row) for frame in frames for row in frame.collect()]))

    for sql in queries:
        try:
            show(query(spark, url, sql))
        except ValueError as error:
            print(json.dumps(str(error)))
    views(spark, url)
    count = "SELECT count(*) FROM orders"
    older = [spark.sql(count), query(spark, url, count)]
    with eventkit.connect(url) as kit:
        kit.stream("orders").publish("one more")
    newer = query(spark, url, count)
    show(*older)
    show(newer)
    copied = Pipeline("copy", url=url, source="orders", sink={"topic": "copied"}, checkpoint=f"{checkpoint}/connect")
    print(json.dumps(copied.run_once(spark)[:2]))
    spark.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
