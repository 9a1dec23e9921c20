"""Streams and queues as tables of Spark, for batch and streaming queries, from SQLite and Postgres.

::

    spark = eventkit.spark.session()
    orders = spark.read.format("eventkit").option("url", "sqlite:///shop.db").option("topic", "orders").load()

Spark finds the source by itself where eventkit is installed; elsewhere call `register`.  The readers and writers run
in Spark's worker processes, and need ``pip install 'eventkit-db[spark]'``.
"""

from .pipeline import Pipeline, Ran, progress
from .s3select import select
from .session import register, session
from .views import query, views

__all__ = ["Pipeline", "Ran", "progress", "query", "register", "select", "session", "views"]
