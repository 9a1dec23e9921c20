"""The name by which Spark finds the data source ``eventkit``: it searches for modules called ``pyspark_…``."""

from eventkit.spark.source import EventkitSource as DefaultSource

__all__ = ["DefaultSource"]
