"""Where Spark's processes of Python begin on this machine: ``python -m eventkit.spark.workers pyspark.worker``.

Spark has them find PySpark in archives, of which each process compiles what it imports, and lists all that is in them
again for each task.  The one that is installed is compiled already.
"""

import os
import sys


def main() -> None:
    """Be the process of which Spark's workers are forks."""
    home = os.path.join(os.environ["SPARK_HOME"], "")
    archives = [path for path in sys.path if path.startswith(home) and path.endswith((".zip", ".jar"))]
    sys.path[:] = [path for path in sys.path if path not in archives]
    for path in archives:
        sys.path_importer_cache.pop(path, None)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
