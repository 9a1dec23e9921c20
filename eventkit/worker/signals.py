"""The signals that end a worker: the first one gently, the second one at once."""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator

logger = logging.getLogger("eventkit.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping(stop: Callable[[], None], kill: Callable[[], bool]) -> Iterator[None]:
    """Within, a signal calls *stop*, and a second one *kill*, after which the process ends then and there.

    *kill* says whether anything was left to be stopped: if not, this is the end that the first signal asked for.

    The handlers are Python's and not the event loop's, so that the second signal ends also a worker whose loop is kept
    by a function that does not come back.  They are set in any case, because to the first process of a container a
    signal without a handler does nothing.
    """
    asked = False

    def receive(number: int, frame: object) -> None:
        nonlocal asked
        name = signal.Signals(number).name
        if not asked:
            asked = True
            logger.info("%s: finishing what is running; a second signal stops at once", name)
            stop()
            return
        code = 0
        if kill():
            logger.warning("%s again: stopping at once; what is running is done again when its lease has run out", name)
            code = 128 + number
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    before = {}
    try:
        with contextlib.suppress(ValueError):  # Only the main thread is sent signals; in another there are none.
            for number in SIGNALS:
                before[number] = signal.signal(number, receive)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
