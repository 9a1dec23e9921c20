"""A driver of Spark that writes the lines of files to a stream, and may be killed with all its processes.

The arguments are the URL, the folder, the checkpoint, the number of parts, and the step at which to die.
"""

import sys
from pathlib import Path

import deadly
from pyspark import cloudpickle

from eventkit.spark import session


def main(url: str, folder: str, checkpoint: str, partitions: str, *fault: str) -> None:
    """Write the rest of the lines."""
    spark = session(master="local[2]")
    cloudpickle.register_pickle_by_value(deadly)
    spark.dataSource.register(deadly.DeadlySource)
    options = dict(zip(("place", "step", "flag"), fault, strict=False))
    if options:
        options["victim"] = "spark"
    form = "deadly" if options else "eventkit"
    deadly.copy_files(spark, Path(folder), Path(checkpoint), int(partitions), form, url=url, topic="t", **options)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
