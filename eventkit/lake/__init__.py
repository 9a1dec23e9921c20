"""Archives of streams: all that a topic ever had, in files of Parquet, for longer than the database keeps it.

::

    lake.archive("sqlite:///shop.db", "orders", to="lake", prune=True, older_than=30 * 86_400)
    lake.replay("sqlite:///shop.db", "orders", to_queue="invoices", since=january)

It needs Arrow (``pip install 'eventkit-db[archive]'``) and no Spark: reading a database and writing files
is bound by one disk, which a cluster does not make faster.
"""

from .adoption import Adopted, adopt_archive, adopt_checkpoint
from .archiving import Archived, archive
from .checking import Checked, check
from .replaying import Replayed, replay

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
