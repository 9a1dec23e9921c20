"""`advance`: letting time pass."""

from collections.abc import Callable
from typing import Any

from ..arguments import FOREVER, Duration, milliseconds
from ..operations import Advance


def advance(kit: Any, seconds: Duration) -> Any:
    """Let *seconds* pass for everything stored: every moment in the database moves back.  Awaited on an async kit.

    A negative number leaves what a clock has stored that was ahead by so much.
    """
    execute: Callable[..., Any] = kit._connection.execute
    return execute(Advance(milliseconds("seconds", seconds, least=-FOREVER)))
