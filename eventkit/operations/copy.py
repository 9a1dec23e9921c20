"""What is asked of a database when a kit moves to another one: all rows of a table, in the order of their keys.

What passes between two databases is a row of plain values: integers, texts and floats, moments as milliseconds, JSON
as text.  Its first columns are its key, whose order is that of bytes.  What one database keeps beside that is its own,
and comes about when the rows are written there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

from . import Operation, Rows

_LOWEST = -(2**63)


class _Export(Operation[Rows], frozen=True):
    """Read the rows behind a key, as many as *limit*."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> Rows:
        """The rows."""
        return rows


class _Import(Operation[None], frozen=True):
    """Write rows; those whose key is there already are left as they are."""

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class Numbers(NamedTuple):
    """The last numbers that were drawn."""

    event: int
    notification: int
    task: int


class ExportNumbers(Operation[Numbers], frozen=True):
    """Read the last number that was drawn of each kind, which may be gone from its table."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> Numbers:
        """The one row."""
        return Numbers(*rows[0])


class ImportNumbers(Operation[None], frozen=True):
    """Have the next numbers lie above these, and above whatever has been drawn already."""

    event: int
    notification: int
    task: int

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class MarkIncomplete(Operation[None], frozen=True):
    """Note that ``copy`` or ``import`` is under way; None when it is done."""

    what: str | None

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class ExportTopics(_Export, frozen=True):
    """Read how far topics are pruned, and their settings."""

    name: str
    limit: int


class ImportTopics(_Import, frozen=True):
    """Write how far topics are pruned, and their settings."""

    rows: Rows


class ExportChannels(_Export, frozen=True):
    """Read the settings of channels."""

    name: str
    limit: int


class ImportChannels(_Import, frozen=True):
    """Write the settings of channels."""

    rows: Rows


class ExportRecipients(_Export, frozen=True):
    """Read the settings of inboxes."""

    name: str
    limit: int


class ImportRecipients(_Import, frozen=True):
    """Write the settings of inboxes."""

    rows: Rows


class ExportQueues(_Export, frozen=True):
    """Read the settings of queues."""

    name: str
    limit: int


class ImportQueues(_Import, frozen=True):
    """Write the settings of queues."""

    rows: Rows


class ExportEvents(_Export, frozen=True):
    """Read events."""

    id: int
    limit: int


class ImportEvents(_Import, frozen=True):
    """Write events."""

    rows: Rows


class ExportNotifications(_Export, frozen=True):
    """Read notifications."""

    id: int
    limit: int


class ImportNotifications(_Import, frozen=True):
    """Write notifications."""

    rows: Rows


class ExportConsumers(_Export, frozen=True):
    """Read the offsets of consumers."""

    topic: str
    name: str
    limit: int


class ImportConsumers(_Import, frozen=True):
    """Write the offsets of consumers."""

    rows: Rows


class ExportTasks(_Export, frozen=True):
    """Read tasks."""

    id: int
    limit: int


class ImportTasks(_Import, frozen=True):
    """Write tasks."""

    rows: Rows


class ExportKeys(_Export, frozen=True):
    """Read reservations of keys."""

    queue: str
    key: str
    limit: int


class ImportKeys(_Import, frozen=True):
    """Write reservations of keys."""

    rows: Rows


class ExportInboxes(_Export, frozen=True):
    """Read what consumers have seen."""

    consumer: str
    message_id: str
    limit: int


class ImportInboxes(_Import, frozen=True):
    """Write what consumers have seen."""

    rows: Rows


class ExportLocks(_Export, frozen=True):
    """Read locks."""

    name: str
    limit: int


class ImportLocks(_Import, frozen=True):
    """Write locks."""

    rows: Rows


class ExportRates(_Export, frozen=True):
    """Read windows and buckets."""

    name: str
    per: int
    limit: int


class ImportRates(_Import, frozen=True):
    """Write windows and buckets."""

    rows: Rows


class ExportResults(_Export, frozen=True):
    """Read results."""

    id: str
    limit: int


class ImportResults(_Import, frozen=True):
    """Write results."""

    rows: Rows


class ExportSchedules(_Export, frozen=True):
    """Read schedules."""

    name: str
    limit: int


class ImportSchedules(_Import, frozen=True):
    """Write schedules."""

    rows: Rows


class ExportWritten(_Export, frozen=True):
    """Read the marks of batches."""

    writer: str
    limit: int


class ImportWritten(_Import, frozen=True):
    """Write the marks of batches."""

    rows: Rows


class ExportLakes(_Export, frozen=True):
    """Read how far topics are archived."""

    topic: str
    limit: int


class ImportLakes(_Import, frozen=True):
    """Write how far topics are archived."""

    rows: Rows


class ExportLakeFiles(_Export, frozen=True):
    """Read which files archives have."""

    topic: str
    path: str
    limit: int


class ImportLakeFiles(_Import, frozen=True):
    """Write which files archives have."""

    rows: Rows


class ExportPipelines(_Export, frozen=True):
    """Read the states of pipelines."""

    name: str
    limit: int


class ImportPipelines(_Import, frozen=True):
    """Write the states of pipelines."""

    rows: Rows


class ExportRollups(_Export, frozen=True):
    """Read sums by the hour."""

    subject: str
    name: str
    hour: int
    measure: str
    limit: int


class ImportRollups(_Import, frozen=True):
    """Write sums by the hour."""

    rows: Rows


class ExportApiKeys(_Export, frozen=True):
    """Read keys of callers; of their secrets there are hashes, so callers go on with what they have."""

    id: str
    limit: int


class ImportApiKeys(_Import, frozen=True):
    """Write keys of callers."""

    rows: Rows


class Table(NamedTuple):
    """How a table is read and written, and a key that lies before all of its rows."""

    name: str
    export: Callable[..., Operation[Rows]]
    write: Callable[[Rows], Operation[None]]
    before: tuple[int | str, ...]


TABLES = (
    Table("eventkit_topic", ExportTopics, ImportTopics, ("",)),
    Table("eventkit_channel", ExportChannels, ImportChannels, ("",)),
    Table("eventkit_recipient", ExportRecipients, ImportRecipients, ("",)),
    Table("eventkit_queue", ExportQueues, ImportQueues, ("",)),
    Table("eventkit_event", ExportEvents, ImportEvents, (_LOWEST,)),
    Table("eventkit_notification", ExportNotifications, ImportNotifications, (_LOWEST,)),
    Table("eventkit_consumer", ExportConsumers, ImportConsumers, ("", "")),
    Table("eventkit_task", ExportTasks, ImportTasks, (_LOWEST,)),
    Table("eventkit_key", ExportKeys, ImportKeys, ("", "")),
    Table("eventkit_inbox", ExportInboxes, ImportInboxes, ("", "")),
    Table("eventkit_lock", ExportLocks, ImportLocks, ("",)),
    Table("eventkit_rate", ExportRates, ImportRates, ("", _LOWEST)),
    Table("eventkit_result", ExportResults, ImportResults, ("",)),
    Table("eventkit_written", ExportWritten, ImportWritten, ("",)),
    Table("eventkit_lake", ExportLakes, ImportLakes, ("",)),
    Table("eventkit_lake_file", ExportLakeFiles, ImportLakeFiles, ("", "")),
    Table("eventkit_pipeline", ExportPipelines, ImportPipelines, ("",)),
    Table("eventkit_rollup", ExportRollups, ImportRollups, ("", "", _LOWEST, "")),
    Table("eventkit_api_key", ExportApiKeys, ImportApiKeys, ("",)),
    Table("eventkit_schedule", ExportSchedules, ImportSchedules, ("",)),
)
"""In the order in which they are written: a reservation after the task that it outlives, and schedules last."""
