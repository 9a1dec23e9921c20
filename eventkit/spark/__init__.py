"""Streams and queues as tables of Spark: read in batches and as streams, from SQLite and Postgres alike.

::

    spark = eventkit.spark.session()
    orders = spark.read.format("eventkit").option("url", "sqlite:///shop.db").option("topic", "orders").load()

Spark finds the source by itself where eventkit is installed; `register` makes it known where it is not.  What reads and
writes runs in the worker processes of Spark, and comes with ``pip install 'eventkit-db[spark]'``.
"""

from .pipeline import Pipeline, Ran
from .starting import register, session
from .views import query, views

__all__ = ["Pipeline", "Ran", "query", "register", "session", "views"]
