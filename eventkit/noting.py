"""How a pipeline is doing, told to the database, where ``eventkit pipeline list`` finds it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from . import arguments
from .errors import EventkitError
from .operations.pipeline import SavePipeline
from .protocols import Connection


class Note:
    """Tells of one pipeline."""

    def __init__(self, connection: Connection, name: str, source: str, sink: str) -> None:
        self._connection = connection
        self._name = arguments.name("pipeline", name)
        self._source = source
        self._sink = sink

    def __call__(self, rows: int = 0, batch: int | None = None, lag: int | None = None) -> None:
        """It runs, and has done so many rows more, up to a batch, and so many are ahead of it."""
        self._save("running", rows, batch, lag, None)

    def end(self, error: str | None = None) -> None:
        """It has ended."""
        self._save("failed" if error else "done", 0, None, None, error)

    def _save(self, state: str, rows: int, batch: int | None, lag: int | None, error: str | None) -> None:
        self._connection.execute(
            SavePipeline(self._name, self._source, self._sink, state, batch, rows, lag, error and arguments.text(error))
        )


@contextmanager
def noted(connection: Connection, name: str, source: str, sink: str) -> Iterator[Note]:
    """Tell that it runs, and how it ends."""
    note = Note(connection, name, source, sink)
    note()
    try:
        yield note
    except BaseException as error:
        with suppress(EventkitError):
            note.end("interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__)
        raise
    note.end()
