"""Rows that could not be written, in a folder: a file of JSON lines for each batch that had such."""

from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import quote

import msgspec

from ..lake.store import Location
from .incoming import BadRow

_LONGEST = 200
"""Characters of a batch's name in that of its file, which has 255 bytes at most."""


def quarantine(folder: str, batch: str, parts: Sequence[tuple[int, Sequence[BadRow]]]) -> None:
    """Write the bad rows of a batch's *parts*, if there are any.

    The file is called after the batch and replaced as a whole, so a batch that is written again has one as well.
    """
    lines = [
        {"partition": part, "row": bad.number, "reason": bad.reason, "value": msgspec.Raw(bad.row.encode())}
        for part, rows in sorted(parts, key=lambda part: part[0])
        for bad in rows
    ]
    if not lines:
        return
    files, path = Location(folder).open()
    files.create_dir(path, recursive=True)
    name = quote(batch, safe="")
    if len(name) > _LONGEST:
        name = name[: _LONGEST - 65] + "-" + sha256(batch.encode()).hexdigest()
    name = f"{path}/{name}.jsonl"
    with files.open_output_stream(f"{name}.part") as stream:
        stream.write(msgspec.json.Encoder().encode_lines(lines))
    files.move(f"{name}.part", name)
