"""Archives of streams: all that a topic ever had, in files of Parquet, for longer than the database keeps it.

::

    lake.archive("sqlite:///shop.db", "orders", to="lake", prune=True, older_than=30 * 86_400)
    lake.replay("sqlite:///shop.db", "orders", to_queue="invoices", since=january)

It takes Arrow (``pip install 'eventkit[spark]'``) and no Spark: what reads a database and writes files waits for one
disk, and a cluster would not make it wait for less.
"""

from .archiving import Archived, archive
from .checking import Checked, check
from .replaying import Replayed, replay

__all__ = ["Archived", "Checked", "Replayed", "archive", "check", "replay"]
