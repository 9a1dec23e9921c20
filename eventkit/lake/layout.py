"""Where the files of archives are, what they are called, and which columns they have.

An archive is a folder: of this machine, or of whatever else Arrow knows by a URI (``s3://…``, ``gs://…``).  In it a
topic has a folder, in that each day (in UTC), and there each file is called after the first and the last offset in it,
whose turn it was when it was written, and a token, so that no two are ever called the same::

    topic=orders/date=2026-01-31/00000000000000000001-00000000000000099812-7-1f0c9a6be2d04a57.parquet

Folders are called as Hive does it, so others find topic and date there.  **A file counts when the manifest has it**
(`ReadLake`): others may lie there that were never finished, or that others have replaced.
"""

import re
import secrets
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("payload", pa.string(), nullable=False),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("created_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""The columns of a file, which are those that Spark's source ``eventkit`` has; its rows are in the order of offsets."""

_NAME = re.compile(r"/date=[\d-]{10}/\.?\d{20}-\d{20}-(\d+)-[0-9a-f]{16}\.parquet(?:\.part)?$")

_LONGEST = 200
"""Characters of a folder's name, beyond which file systems begin to refuse it."""


def folder(topic: str) -> str:
    """The folder of a topic, seen from the archive's."""
    name = quote(topic, safe="")
    if len(name) > _LONGEST:
        begin = re.sub("%.?$", "", name[: _LONGEST - 20])
        name = f"{begin}~{sha256(topic.encode()).hexdigest()[:16]}"
    return f"topic={name}"


def path(topic: str, date: str, first: int, last: int, epoch: int) -> str:
    """A new file for events of a day (``2026-01-31``), seen from the archive's folder."""
    return f"{folder(topic)}/date={date}/{first:020}-{last:020}-{epoch}-{secrets.token_hex(8)}.parquet"


def epoch(path: str) -> int | None:
    """Whose turn it was when the file was written; None for a file that is none of an archive."""
    found = _NAME.search(path)
    return int(found[1]) if found else None


def date(moment: int) -> str:
    """The day of a moment in milliseconds."""
    return datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d")
