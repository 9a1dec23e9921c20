"""Outboxes and inboxes: messages that leave with a transaction, and messages that arrive once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..checks import Duration
from ..stats import OutboxStats
from ..values import InboxSettings
from .iterators import KEEP, P
from .queues import AsyncTaskQueue, TaskQueue


class Outbox(Protocol[P]):
    """An outbox: messages written in the application's transactions, and delivered elsewhere once these commit.

    Each message is delivered at least once, with the same ``message_id`` at every attempt.  With ``ordered=True``, the
    messages of one key are delivered one after the other, in the order in which they were added.
    """

    name: str

    @property
    def queue(self) -> TaskQueue[P]:
        """The queue of the outbox's messages: its settings, its dead letters, `pause` and `resume`."""
        ...

    def add(self, tx: Any, payload: P, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> str:
        """Add a message inside the caller's transaction; return its ``message_id``."""
        ...

    def run(self, worker: str | None = None, *, batch: int = 1) -> None:
        """Call *deliver* with each message, until `stop` or the kit is closed, claiming up to *batch* at a time.

        A delivery succeeds when *deliver* returns.  When it raises, the message is retried after 5, 10, 20 and 40
        seconds, and is a dead letter after that, with the traceback, unless the queue is configured otherwise.
        *deliver* may raise `Retry` and `Permanent`.  At the end, the delivery in progress is finished, and the other
        claimed messages are released.
        """
        ...

    def stop(self) -> None:
        """End every `run` of this handle, later ones too.  Any thread may call it; it does not wait."""
        ...

    def stats(self) -> OutboxStats:
        """Return the outbox's numbers."""
        ...


class AsyncOutbox(Protocol[P]):
    """`Outbox`, awaited.  *deliver* may be a coroutine function; a callable that blocks runs in a thread."""

    name: str

    @property
    def queue(self) -> AsyncTaskQueue[P]: ...

    async def add(
        self, tx: Any, payload: P, *, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> str: ...

    async def run(self, worker: str | None = None, *, batch: int = 1) -> None: ...

    def stop(self) -> None: ...

    async def stats(self) -> OutboxStats: ...


class Inbox(Protocol):
    """The messages that a consumer has seen, so that a message delivered twice has one effect."""

    consumer: str

    def once(self, message_id: str, tx: Any) -> bool:
        """Return whether the consumer sees the message for the first time: True once, if the transaction commits.

        A caller waits while another transaction holds the same message.
        """
        ...

    def prune(self, *, older_than: Duration) -> int:
        """Forget messages seen longer ago; return their number.  A forgotten message counts as new if redelivered."""
        ...

    def configure(self, *, retain: Duration | None = KEEP) -> None:
        """Let `EventKit.maintain` forget messages seen longer ago than *retain*; None keeps them for ever."""
        ...

    def settings(self) -> InboxSettings:
        """Return the inbox's settings."""
        ...


class AsyncInbox(Protocol):
    """`Inbox`, awaited."""

    consumer: str

    async def once(self, message_id: str, tx: Any) -> bool: ...

    async def prune(self, *, older_than: Duration) -> int: ...

    async def configure(self, *, retain: Duration | None = KEEP) -> None: ...

    async def settings(self) -> InboxSettings: ...
