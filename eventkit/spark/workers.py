"""The entry point of Spark's Python processes on this machine: ``python -m eventkit.spark.workers pyspark.worker``.

Spark makes them import PySpark from archives, which each process compiles again, and lists again for each task.
The installed package is compiled already.
"""

import os
import sys


def main() -> None:
    """Run the process from which Spark's workers are forked."""
    home = os.path.join(os.environ["SPARK_HOME"], "")
    archives = [path for path in sys.path if path.startswith(home) and path.endswith((".zip", ".jar"))]
    sys.path[:] = [path for path in sys.path if path not in archives]
    for path in archives:
        sys.path_importer_cache.pop(path, None)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
