"""A driver of Spark: reads the topic ``orders`` into Parquet files, a few events at a time, until there are no more.

It is run as a program of its own, to be killed.
"""

import os
import sys

import eventkit.spark

if __name__ == "__main__":
    url, folder, remote = sys.argv[1:]
    if remote:
        from pyspark.sql import SparkSession

        # The server that it starts loads and runs its sources by this interpreter.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        spark = SparkSession.builder.remote(remote).getOrCreate()
    else:
        spark = eventkit.spark.session(master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    options = {"topic": "orders", "startingOffsets": "earliest", "consumer": "lake", "maxOffsetsPerTrigger": "20"}
    stream = spark.readStream.format("eventkit").options(url=url, minPartitions="2", **options).load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .option("path", f"{folder}/out")
        .trigger(availableNow=True)
        .start()
    )
    print("begins", flush=True)
    query.awaitTermination()
    rows = sorted(row.offset for row in spark.read.parquet(f"{folder}/out").select("offset").collect())
    print("ends", *rows, flush=True)
    spark.stop()
