"""Outboxes and inboxes: messages that leave with a transaction, and messages that arrive once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..arguments import Duration
from ..settings import InboxSettings
from ..stats import OutboxStats
from .queues import AsyncTaskQueue, TaskQueue
from .terms import KEEP, P


class Outbox(Protocol[P]):
    """An outbox: messages written in the application's transactions, and delivered elsewhere once these commit.

    Each message is delivered at least once, with the same ``message_id`` at every attempt.  With ``ordered=True`` the
    messages of one key are delivered one after the other, in the order in which they were added.
    """

    name: str

    @property
    def queue(self) -> TaskQueue[P]:
        """The queue that the outbox stands on: its settings, its dead letters, `pause` and `resume`."""
        ...

    def add(self, tx: Any, payload: P, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> str:
        """Add a message inside the caller's transaction; its ``message_id``."""
        ...

    def run(self, worker: str | None = None, *, batch: int = 1) -> None:
        """Call *deliver* with each message, for ever, claiming up to *batch* at a time.

        A delivery has succeeded when *deliver* returns.  When it raises, the message is tried again after 5, 10, 20
        and 40 seconds, and is a dead letter then, with the traceback; unless the queue is configured otherwise.
        `Retry` and `Permanent` say what to do.  Ends after `stop`, or when the kit is closed: what was begun is
        finished, and what was claimed beyond that is given back.
        """
        ...

    def stop(self) -> None:
        """Let every `run` of this handle end, those begun later too.  May be called from anywhere; waits for nobody."""
        ...

    def stats(self) -> OutboxStats:
        """The outbox in numbers."""
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
    """What a consumer has seen, so that a message which comes twice has one effect."""

    consumer: str

    def once(self, message_id: str, tx: Any) -> bool:
        """Whether the consumer sees the message for the first time.  True once, if that transaction commits.

        Whoever asks while another transaction has the message waits for its end.
        """
        ...

    def prune(self, *, older_than: Duration) -> int:
        """Forget what was seen longer ago; how many messages.  One of them would count as new from then on."""
        ...

    def configure(self, *, retain: Duration | None = KEEP) -> None:
        """Let `EventKit.maintain` forget what was seen longer ago than *retain*; None is to remember it for ever."""
        ...

    def settings(self) -> InboxSettings:
        """What the inbox is configured to."""
        ...


class AsyncInbox(Protocol):
    """`Inbox`, awaited."""

    consumer: str

    async def once(self, message_id: str, tx: Any) -> bool: ...

    async def prune(self, *, older_than: Duration) -> int: ...

    async def configure(self, *, retain: Duration | None = KEEP) -> None: ...

    async def settings(self) -> InboxSettings: ...
