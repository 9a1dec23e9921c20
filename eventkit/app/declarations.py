"""What an application has declared, as values: all that a worker needs to know of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..retry import Policy
from .signature import Signature

OnCrash = Literal["retry", "fail"]
Then = Literal["stop", "skip"]


@dataclass(frozen=True)
class TaskDeclaration:
    """A function that is run for the tasks of its name.

    *retries*, *timeout* (in seconds) and *backoff* are the queue's where they are None; *rate*, *burst* and
    *max_running* are stored with the queue.  With *batch* above 1 one call is for up to so many tasks.
    """

    name: str
    queue: str
    function: Callable[..., Any]
    signature: Signature
    is_async: bool
    retries: int | None = None
    timeout: float | None = None
    backoff: Policy | None = None
    rate: float | None = None
    burst: float | None = None
    max_running: int | None = None
    key: Callable[..., str | None] | str | None = None
    on_crash: OnCrash = "retry"
    batch: int = 1
    isolation: Literal["process"] | None = None
    on_success: tuple[Callable[..., Any], ...] = ()
    on_failure: tuple[Callable[..., Any], ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """What the queue is to be configured with, which is nothing where nothing was declared."""
        values = {"rate": self.rate, "burst": self.burst, "max_running": self.max_running}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class SubscriberDeclaration:
    """A function that is called with each event of a topic, in order.

    One that fails *retries* times more is not tried again: *then* the consumer stops, or skips it, which publishes it
    to the stream *dead_letters*.
    """

    topic: str
    consumer: str
    function: Callable[..., Any]
    is_async: bool
    type: Any
    retries: int
    backoff: Policy
    then: Then
    dead_letters: str


@dataclass(frozen=True)
class ListenerDeclaration:
    """A function that is called with each notification of some channels."""

    channels: tuple[str, ...]
    function: Callable[..., Any]
    is_async: bool
    type: Any


@dataclass(frozen=True)
class ScheduleDeclaration:
    """A task that is enqueued at certain times, with *args*, which are JSON values by name."""

    name: str
    when: str
    tz: str
    task: TaskDeclaration
    args: dict[str, Any]
    catch_up: str
