"""Archives for those who have only the folder: tables of Delta Lake or Apache Iceberg that list what the manifest has.

The manifest decides, and the table follows: after each of its commits, and when a turn begins, files that the table has
not are added to it, and those that count no more are taken out, in one commit of the table.  Whoever was killed between
the two commits has left nothing that the next turn would not do.  A table that was removed is written anew.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, get_args

from ..errors import EventkitError
from ..operations.lake import LakeFile

if TYPE_CHECKING:
    from .store import Store

Format = Literal["parquet", "delta", "iceberg"]
"""Files of Parquet, and which table lists them beside the manifest; none for the first."""

FORMATS: tuple[str, ...] = get_args(Format)

_ATTEMPTS = 5
"""At a commit, while somebody whose turn has ended commits as well."""


class Conflict(Exception):
    """Somebody else has committed to the table since it was read."""


class Table(Protocol):
    """A table in the folder of a topic."""

    failures: tuple[type[Exception], ...]
    """What its library raises, and what lies in its folder that it cannot read."""

    folder: str
    """Where it keeps what it knows; without that, there is no table."""

    def read(self) -> dict[str, int]:
        """The files that it has by now, seen from the archive's folder, and how many rows are in each."""
        ...

    def commit(self, new: list[LakeFile], gone: list[str], same: bool) -> None:
        """Have the files *new* for those that are *gone*; `Conflict` if it is not as it was read.

        With *same*, the rows are the same.
        """
        ...


class Listing:
    """Brings the table of a topic in step with the manifest."""

    def __init__(self, store: "Store", topic: str, format: str) -> None:
        self._store = store
        self._table: Table
        try:
            if format == "delta":
                from .delta import Delta

                self._table = Delta(store, topic)
            else:
                from .iceberg import Iceberg

                self._table = Iceberg(store, topic)
        except ModuleNotFoundError as error:
            raise EventkitError(
                f"an archive kept as a table of {format} takes {error.name}: pip install 'eventkit-db[{format}]'"
            ) from None

    def follow(self, manifest: Callable[[], list[LakeFile]]) -> None:
        """Have what the manifest has.

        It is read behind the table: so whoever finds an older manifest finds an older table, and commits nothing.
        """
        for _ in range(_ATTEMPTS):
            try:
                has = self._table.read()
                files = manifest()
                new = [file for file in files if file.path not in has]
                gone = has.keys() - {file.path for file in files}
                if new or gone:
                    same = sum(file.rows for file in new) == sum(has[path] for path in gone)
                    self._table.commit(new, sorted(gone), same)
                return
            except Conflict:
                continue
            except self._table.failures as error:
                self._failed(self._store.place.without_secrets(error)[:200] or type(error).__name__)
        self._failed("somebody else goes on to write to it")

    def _failed(self, reason: str) -> NoReturn:
        raise EventkitError(
            f"the table of the archive in {self._store.location} cannot be brought in step: {reason}; the archive "
            f"itself has everything: archive again, and if it stays like that, remove {self._table.folder} there"
        )
