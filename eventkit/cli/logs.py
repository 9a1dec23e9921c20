"""What a worker or a scheduler says while it runs: its log, as lines on stderr, or as objects on stdout (`--json`)."""

import logging
import sys
import time

from eventkit.logs import JSONLines, TextLines, escaped

_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[1;31m"}


def begin(json: bool) -> None:
    """Print what is logged from now on, of the application and of its libraries too."""
    handler = logging.StreamHandler(sys.stdout if json else sys.stderr)
    if json:
        handler.setFormatter(JSONLines())
    elif sys.stderr.isatty():
        handler.setFormatter(_Colours())
    else:
        handler.setFormatter(TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # It tells of each of its parts when it is loaded, which is whenever somebody connects.
    logging.getLogger("alembic").setLevel(logging.WARNING)


class _Colours(TextLines):
    """A line for somebody who looks on: what is the matter is to be seen at once."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = escaped(record.getMessage().rstrip())
        line = f"\x1b[2m{clock}\x1b[0m  {_COLOURS.get(record.levelno, '')}{text}\x1b[0m"
        if not record.name.startswith("eventkit"):
            line += f"  \x1b[2m{record.name}\x1b[0m"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
