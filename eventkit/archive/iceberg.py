"""The metadata of a table of Apache Iceberg, in the folder of its stream; no catalog is needed.

``metadata/v7.metadata.json`` is a version of the table, which exists once the file has its name, and
``metadata/version-hint.text`` names the newest; if a writer died before it wrote the hint, the next one does.
"""

import posixpath
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import ValidationError, ValidationException
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_file_to_data_file
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, MapType, NestedField, StringType, TimestamptzType

from ..operations.bulk import ArchiveFile
from .files import Store, topic_folder
from .lease import Conflict

_SCHEMA = Schema(
    NestedField(1, "offset", LongType(), required=True),
    NestedField(2, "topic", StringType(), required=True),
    NestedField(3, "key", StringType()),
    NestedField(4, "payload", StringType(), required=True),
    NestedField(5, "headers", MapType(7, StringType(), 8, StringType(), value_required=False)),
    NestedField(6, "created_at", TimestamptzType(), required=True),
)
"""`files.SCHEMA`, with the column numbers of Iceberg."""

_DAYS = PartitionSpec(PartitionField(source_id=6, field_id=1000, transform=DayTransform(), name="date"))

_SETTINGS = {
    "schema.name-mapping.default": _SCHEMA.name_mapping.model_dump_json(),
    # Readers skip files by metrics; those of payloads would be their beginnings.
    "write.metadata.metrics.default": "none",
    "write.metadata.metrics.column.offset": "full",
    "write.metadata.metrics.column.created_at": "full",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

_KEPT = timedelta(hours=1)
"""The time for which a snapshot, and its files, are kept when there are newer ones."""

_VERSION = re.compile(r"v(\d+)\.metadata\.json")


class Iceberg:
    """A table of Apache Iceberg."""

    failures: tuple[type[Exception], ...] = (OSError, ValueError, ValidationError, ValidationException)

    def __init__(self, store: Store, stream: str) -> None:
        self.folder = f"{topic_folder(stream)}/metadata"
        self._store = store
        self._stream = stream
        self._version = 0
        self._table: Any = None
        self._files: dict[str, Any] = {}

    def read(self) -> dict[str, int]:
        """Return the files of the table, and their rows; create the table if there is none."""
        names = [posixpath.basename(path) for path in self._store.list(self.folder)]
        self._version = max((int(found[1]) for name in names if (found := _VERSION.fullmatch(name))), default=0)
        if not self._version:
            root = self._store.place.uri(topic_folder(self._stream))
            self.write(new_table_metadata(_SCHEMA, _DAYS, UNSORTED_SORT_ORDER, root, dict(_SETTINGS)))
        self._hint()
        location = self._store.place.uri(self._path())
        metadata = TableMetadataUtil.parse_raw((self._store.read(self._path()) or b"").decode())
        files = load_file_io({}, location)
        if self._store.place.is_remote:
            files = PyArrowFileIO()
            files.fs_by_scheme = lambda _scheme, _host: self._store.files
        self._table = Table((self._stream,), metadata, location, files, _Folder(self))
        self._files = {self._inside(scan.file.file_path): scan.file for scan in self._table.scan().plan_files()}
        return {path: file.record_count for path, file in self._files.items()}

    def commit(self, new: list[ArchiveFile], gone: list[str], same: bool) -> None:
        """Commit one snapshot, and remove those that have expired."""
        table = self._table
        before = table.metadata.snapshots
        with table.transaction() as transaction:
            with ExpireSnapshots(transaction) as expired:
                expired.older_than(datetime.now(UTC) - _KEPT)
            snapshots = transaction.update_snapshot()
            # An append merges many small lists of files into a large one; an overwrite does not.
            with snapshots.overwrite() if gone else snapshots.merge_append() as snapshot:
                for file in new:
                    path = self._store.place.uri(file.path)
                    snapshot.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))
                for path in gone:
                    snapshot.delete_data_file(self._files[path])
        kept = table.metadata.snapshots
        if over := [one for one in before if one not in kept]:
            # Files that an older snapshot shares with any kept one, it shares with the oldest of these.
            for path in self._parts(over) - self._parts(kept[:1]):
                self._store.remove(path)

    def write(self, metadata: Any) -> str:
        """Write the next version; return its location."""
        self._version += 1
        if self._store.size(self._path()) is not None:
            raise Conflict
        self._store.write(self._path(), metadata.model_dump_json(exclude_none=True).encode())
        self._hint()
        return self._store.place.uri(self._path())

    def _hint(self) -> None:
        path, hint = f"{self.folder}/version-hint.text", str(self._version).encode()
        if self._store.read(path) != hint:
            self._store.write(path, hint)

    def _parts(self, snapshots: Any) -> set[str]:
        """Return the lists of files that snapshots consist of."""
        found = set()
        for snapshot in snapshots:
            found.add(self._inside(snapshot.manifest_list))
            found.update(self._inside(manifest.manifest_path) for manifest in snapshot.manifests(self._table.io))
        return found

    def _path(self) -> str:
        return f"{self.folder}/v{self._version}.metadata.json"

    def _inside(self, location: str) -> str:
        """Return a path relative to the archive's folder."""
        return location.removeprefix(self._store.place.uri(""))


class _Folder(NoopCatalog):  # type: ignore[misc]
    """A catalog that is the table's own folder."""

    def __init__(self, table: Iceberg) -> None:
        super().__init__("eventkit")
        self._owner = table

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        """Write the next version."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        return CommitTableResponse.model_construct(metadata=metadata, metadata_location=self._owner.write(metadata))
