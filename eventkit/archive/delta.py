"""The log of a table of Delta Lake, in the folder of its stream."""

import time
from datetime import UTC, datetime
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction

from ..errors import EventkitError
from ..operations.bulk import ArchiveFile
from .files import SCHEMA, Store, topic_folder
from .lease import Conflict

_SCHEMA = pa.schema([*SCHEMA, pa.field("date", pa.date32())])
"""The day is in the name of the folder, and in no file."""

_SETTINGS = {"delta.logRetentionDuration": "interval 1 days", "delta.deletedFileRetentionDuration": "interval 1 days"}
"""Archiving every minute makes a commit a minute, and replaced files are deleted after an hour anyway."""


class Delta:
    """A table of Delta Lake."""

    failures: tuple[type[Exception], ...] = (DeltaError, OSError, ValueError)

    def __init__(self, store: Store, stream: str) -> None:
        root = topic_folder(stream)
        self.folder = f"{root}/_delta_log"
        self._inside = f"{root}/"
        self._uri = store.place.uri(root)
        self._options = store.place.delta_options()
        self._table: Any = None
        # deltalake decodes % twice as an encoded character, and looks in another folder.
        if "%" in self._uri:
            raise EventkitError(
                f"deltalake reads nothing in folders with % in their names, such as {self._uri}: "
                f"archive stream {stream!r} as iceberg or parquet, or from a stream of letters and digits"
            )

    def read(self) -> dict[str, int]:
        """Return the files of the table, and their rows; create the table if there is none."""
        if not deltalake.DeltaTable.is_deltatable(self._uri, self._options):
            schema = deltalake.Schema.from_arrow(_SCHEMA)
            deltalake.DeltaTable.create(
                self._uri,
                schema,
                mode="ignore",
                partition_by=["date"],
                configuration=_SETTINGS,
                storage_options=self._options,
            )
        self._table = deltalake.DeltaTable(self._uri, storage_options=self._options)
        found = self._table.get_add_actions(flatten=True)
        paths = [self._inside + path for path in found["path"].to_pylist()]
        return dict(zip(paths, found["num_records"].to_pylist(), strict=True))

    def commit(self, new: list[ArchiveFile], gone: list[str], same: bool) -> None:
        """Write one entry of the log."""
        now = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(self._name(file.path), file.bytes, {"date": file.date}, now, not same, _statistics(file))
            for file in new
        ]
        actions += [RemoveAction(self._name(path), not same, now) for path in gone]
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                partition_by=["date"],
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError as error:
            raise Conflict from error

    def _name(self, path: str) -> str:
        return path.removeprefix(self._inside)


def _statistics(file: ArchiveFile) -> str:
    """Return the statistics by which readers skip files."""
    return msgspec.json.encode(
        {
            "numRecords": file.rows,
            "minValues": {"offset": file.first, "created_at": _moment(file.oldest)},
            "maxValues": {"offset": file.last, "created_at": _moment(file.newest)},
            "nullCount": {"offset": 0, "created_at": 0},
        }
    ).decode()


def _moment(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='milliseconds')}Z"
