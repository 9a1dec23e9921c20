"""`Inbox`: what a consumer has seen, so that a message which comes twice counts once."""

from collections.abc import Callable
from typing import Any

from . import arguments
from .arguments import KEEP, Duration
from .operations.inbox import PruneInbox, See
from .operations.retention import ConfigureInbox, ReadInboxSettings


class Inbox:
    """Behaves as `eventkit.protocols.Inbox` and `AsyncInbox` say."""

    def __init__(self, execute: Callable[..., Any], consumer: str) -> None:
        self.consumer = arguments.name("consumer", consumer)
        self._execute = execute

    def once(self, message_id: str, tx: Any) -> Any:
        """Whether the consumer sees the message for the first time; noted inside the caller's transaction."""
        if tx is None:
            raise ValueError(
                "a message is seen inside the transaction of what it leads to: pass your session, "
                "or what kit.transaction() gives"
            )
        return self._execute(See(self.consumer, arguments.name("message", message_id, 1000)), tx)

    def prune(self, *, older_than: Duration) -> Any:
        """Forget what was seen longer ago; how many messages."""
        return self._execute(PruneInbox(self.consumer, arguments.milliseconds("older_than", older_than)))

    def configure(self, *, retain: Duration | None = KEEP) -> Any:
        """Store for how long `EventKit.maintain` is to leave what was seen; None is for ever."""
        given = arguments.settings(retain=(retain, arguments.milliseconds))
        return self._execute(ConfigureInbox(self.consumer, list(given), **given))

    def settings(self) -> Any:
        """What the inbox is configured to."""
        return self._execute(ReadInboxSettings(self.consumer))
