"""Archives of streams: all events of a topic, in files of Parquet, for longer than the database keeps them.

::

    lake.archive("sqlite:///shop.db", "orders", to="lake", prune=True, older_than=30 * 86_400)
    lake.replay("sqlite:///shop.db", "orders", to_queue="invoices", since=january)

It needs Arrow (``pip install 'eventkit-db[archive]'``) and no Spark: reading a database and writing files
is bound by one disk, which a cluster does not make faster.
"""

from .archiver import Archived, archive
from .replayer import Replayed, replay
from .verification import Adopted, Checked, adopt_archive, adopt_checkpoint, check

__all__ = [
    "Adopted",
    "Archived",
    "Checked",
    "Replayed",
    "adopt_archive",
    "adopt_checkpoint",
    "archive",
    "check",
    "replay",
]
