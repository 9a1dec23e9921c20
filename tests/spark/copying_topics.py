"""A driver of Spark that copies the topic ``orders`` to ``copied``, a few events at a time, until there are no more.

The arguments are the master and the checkpoint; the environment names the database, here as on the executors.
"""

import sys

from eventkit.spark import session


def main(master: str, checkpoint: str, shared_file: str = "true") -> None:
    """Copy the rest of the events."""
    database = {"urlEnv": "SHOP_URL", "sharedFile": shared_file}
    config = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.task.maxFailures": "8"}
    spark = session(master=master, config=config)
    reading = {"startingOffsets": "earliest", "consumer": "copy", "maxOffsetsPerTrigger": "40", "minPartitions": "2"}
    stream = spark.readStream.format("eventkit").options(**database, topic="orders", **reading).load()
    written = stream.writeStream.format("eventkit").options(**database, topic="copied")
    query = written.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    print("begins", flush=True)
    query.awaitTermination()
    rows = spark.read.format("eventkit").options(**database, topic="copied", minPartitions="2").load()
    print("ends", rows.count(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
