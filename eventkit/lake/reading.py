"""The events in the files of an archive; a file that is not what the manifest says is told, and never passed over."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import parquet

from ..arrays import compute
from ..errors import EventkitError
from ..operations.lake import LakeFile
from . import layout
from .store import Store


def tables(store: Store, file: LakeFile) -> Iterator[Any]:
    """The events of a file, some at a time; each page of it is compared with its checksum."""
    check(store, file)
    try:
        with store.open(file.path) as stream, parquet.ParquetFile(stream, page_checksum_verification=True) as found:
            if found.metadata.num_rows != file.rows:
                _damaged(store, file, f"has {found.metadata.num_rows:,} events in the place of {file.rows:,}")
            for group in range(found.num_row_groups):
                yield found.read_row_group(group).cast(layout.SCHEMA)
    except (OSError, pa.ArrowException) as error:
        _damaged(store, file, f"cannot be read ({' '.join(str(error).split())[:200]})")


def check(store: Store, file: LakeFile) -> None:
    """Raise `EventkitError` if a file is not there, or is longer or shorter than it was."""
    with store.told("cannot be read"):
        size = store.size(file.path)
    if size is None:
        _damaged(store, file, "is missing")
    if size != file.bytes:
        _damaged(store, file, f"has {size:,} bytes in the place of {file.bytes:,}")


def merged(store: Store, files: Iterable[LakeFile]) -> Iterator[Any]:
    """The events of files in the order of offsets, also where those of two days overlap; some at a time."""
    waiting = deque(sorted(files, key=lambda file: file.first))
    under_way: list[tuple[Any, Iterator[Any]]] = []
    while waiting or under_way:
        while waiting and (not under_way or waiting[0].first <= _safe(under_way)):
            rest = tables(store, waiting.popleft())
            under_way.append((next(rest), rest))
        last = _safe(under_way)
        ready, still = [], []
        for table, rest in under_way:
            number = compute.sum(compute.less_equal(table["offset"], last)).as_py()
            if number:
                ready.append(table.slice(0, number))
            left = table.slice(number) if number < table.num_rows else next(rest, None)
            if left is not None:
                still.append((left, rest))
        under_way = still
        found = pa.concat_tables(ready)
        yield found if len(ready) == 1 else found.take(compute.sort_indices(found["offset"]))


def _safe(under_way: list[tuple[Any, Iterator[Any]]]) -> int:
    """Up to which offset all files that are open have been read."""
    return int(min(table["offset"][-1].as_py() for table, _ in under_way))


def _damaged(store: Store, file: LakeFile, what: str) -> NoReturn:
    raise EventkitError(
        f"{file.path} of the archive in {store.location} {what}: put it back from a backup; until then nothing that "
        f"was archived is dropped from the database"
    )
