"""What a worker itself can find wrong with a run."""

from ..handling import Retry

CRASHED = "CRASHED"
"""What the error begins with of a task that has taken its process along, and is not to be run again."""


class Timeout(Retry):
    """The run has taken longer than its declaration allows."""

    def __init__(self, seconds: float) -> None:
        super().__init__(error=f"timed out after {seconds:g} s")


class Crashed(Retry):
    """The process in which the task ran has died."""

    def __init__(self, how: str) -> None:
        super().__init__(error=how)


class Failed(Retry):
    """The function has raised in another process something that could not be brought here."""

    def __init__(self, text: str) -> None:
        super().__init__(error=text)
