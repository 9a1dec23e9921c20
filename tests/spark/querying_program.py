"""A client of Spark Connect: prints the answers to queries over the topics of a database, a line of JSON for each, and
the batches and rows of a pipeline that copies the live events of one.

It is run as a program of its own, because a process is a client or has a Java of its own, and never both.
"""

import json
import os
import sys

from pyspark.sql import SparkSession

import eventkit
from eventkit.spark import Pipeline, query, views

if __name__ == "__main__":
    url, checkpoint, *queries = sys.argv[1:]
    # The server that it starts loads and runs its sources by this interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    for sql in queries:
        try:
            print(json.dumps([list(row) for row in query(spark, url, sql).collect()]))
        except ValueError as error:
            print(json.dumps(str(error)))
    views(spark, url)
    count = "SELECT count(*) FROM orders"
    older = [spark.sql(count), query(spark, url, count)]
    with eventkit.connect(url) as kit:
        kit.stream("orders").publish("one more")
    newer = query(spark, url, count)
    print(json.dumps([list(row) for answer in older for row in answer.collect()]))
    print(json.dumps([list(row) for row in newer.collect()]))
    copied = Pipeline("copy", url=url, source="orders", sink={"topic": "copied"}, checkpoint=f"{checkpoint}/connect")
    print(json.dumps(copied.run_once(spark)[:2]))
    spark.stop()
