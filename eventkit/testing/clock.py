"""`advance`: letting time pass."""

from collections.abc import Callable
from typing import Any

from ..arguments import Duration, milliseconds
from ..operations import Advance


def advance(kit: Any, seconds: Duration) -> Any:
    """Let *seconds* pass for everything stored: every moment in the database moves back.  Awaited on an async kit."""
    execute: Callable[..., Any] = kit._connection.execute
    return execute(Advance(milliseconds("seconds", seconds)))
