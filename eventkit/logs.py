"""Logs as lines of text, or as lines of JSON with the request and the task of each record.

Extra attributes of a record, such as the ``task_id`` that a worker sets, become fields of the line.
"""

import logging
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

REQUEST: ContextVar[str | None] = ContextVar("eventkit_request", default=None)
"""The id of the current request, for all records logged during it."""

_ORDINARY = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"})
_encode = msgspec.json.Encoder(enc_hook=str).encode


class TextLines(logging.Formatter):
    """A line of text for each record, with its traceback below.

    Text from elsewhere, such as the message of an exception, can neither begin a line nor control a terminal.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s  %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without its traceback."""
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """Return the traceback, with each exception's text in one line."""
        parts = [part.removesuffix("\n") for part in traceback.TracebackException(*ei).format()]
        # Lines that Python itself writes begin like this, and may follow each other; the rest is a message.
        return "\n".join(
            "\n".join(map(escaped, part.split("\n"))) if part.startswith(("  ", "\n", "Traceback ")) else escaped(part)
            for part in parts
        )


def escaped(text: str) -> str:
    """Return *text* with unprintable characters, including newlines, as escape sequences."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class JSONLines(logging.Formatter):
    """A line of JSON for each record: ``time``, ``level``, ``logger``, ``message``, and its extra attributes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request := REQUEST.get()) is not None:
            line["request_id"] = request
        line |= {name: value for name, value in vars(record).items() if name not in _ORDINARY}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _encode(_plain(line)).decode()


def _plain(line: dict[str, Any]) -> dict[str, Any]:
    """Replace text that is not valid UTF-8, which would make the line unreadable."""
    return {
        name: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for name, value in line.items()
    }
