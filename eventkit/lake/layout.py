"""The folders, the names and the columns of the files of archives.

An archive is a folder of this machine, or one that Arrow reaches by a URI (``s3://…``, ``gs://…``).  In it, each
topic has a folder, with one for each day (in UTC).  A file is named after the first and the last offset in it, the
number of the turn that wrote it, and a token, so that no two ever have the same name::

    topic=orders/date=2026-01-31/00000000000000000001-00000000000000099812-7-1f0c9a6be2d04a57.parquet

Folders are named as by Hive, so other tools find topic and date there.  **A file counts if the manifest has it**
(`ReadLake`): the folder may also have unfinished files, and files that were replaced.
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
"""The columns of a file, which are those of Spark's source ``eventkit``; its rows are in the order of offsets."""

_NAME = re.compile(r"/date=[\d-]{10}/\.?\d{20}-\d{20}-(\d+)-[0-9a-f]{16}\.parquet(?:\.part)?$")

_LONGEST = 200
"""The maximum length of a folder's name; some file systems refuse longer ones."""


def folder(topic: str) -> str:
    """Return the folder of a topic, relative to the archive's."""
    name = quote(topic, safe="")
    if len(name) > _LONGEST:
        begin = re.sub("%.?$", "", name[: _LONGEST - 20])
        name = f"{begin}~{sha256(topic.encode()).hexdigest()[:16]}"
    return f"topic={name}"


def path(topic: str, date: str, first: int, last: int, epoch: int) -> str:
    """Return the path of a new file for events of a day (``2026-01-31``), relative to the archive's folder."""
    return f"{folder(topic)}/date={date}/{first:020}-{last:020}-{epoch}-{secrets.token_hex(8)}.parquet"


def epoch(path: str) -> int | None:
    """Return the turn in which the file was written; None for a file that is not of an archive."""
    found = _NAME.search(path)
    return int(found[1]) if found else None


def date(moment: int) -> str:
    """Return the day of a time in milliseconds."""
    return datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d")
