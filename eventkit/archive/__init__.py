"""Archives of streams: all events of a stream, in files of Parquet, for longer than the database keeps them.

::

    archive.archive("sqlite:///shop.db", "orders", to="archive", prune=True, older_than=30 * 86_400)
    archive.replay("sqlite:///shop.db", "orders", to_queue="invoices", since=january)

It needs Arrow (``pip install 'eventkit-db[archive]'``) and no Spark: reading a database and writing files
is bound by one disk, which a cluster does not make faster.
"""

from .archiver import Archived, Checked, archive, check
from .lease import Adopted, adopt_archive, adopt_checkpoint
from .replayer import Replayed, replay

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
