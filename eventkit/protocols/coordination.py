"""Schedules, locks and results."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, Self

from ..checks import Duration
from ..values import Fire, Schedule
from .iterators import KEEP


class Schedules(Protocol):
    """The schedules of a database, which create tasks at certain times; any number of processes may fire them.

    A fire is a task that is due at the time of the fire.  Its headers name the schedule (``eventkit-schedule``) and
    that time (``eventkit-fire``).  Each fire creates exactly one task.
    """

    def add(
        self,
        name: str,
        when: str,
        queue: str,
        payload: Any = None,
        *,
        tz: str = "UTC",
        priority: int = 0,
        expires: Duration | None = None,
        max_attempts: int | None = None,
        catch_up: str = "all",
        paused: bool = False,
        headers: Mapping[str, str] | None = None,
        tx: Any = None,
    ) -> None:
        """Add a schedule, or replace the one with the same name.

        *when* is a cron expression of five fields, or of six with the seconds first, ``@hourly`` and the like, or an
        interval such as ``"@every 1h30m"``, in the time zone *tz*.  A task *expires* that long after its fire.
        *catch_up* says what to do about fires that were missed because no process was running: ``"all"`` creates the
        first 64 of them, ``"latest"`` the last one, and ``"none"`` only one that is less than a minute late.

        A replaced schedule whose *when* and *tz* are unchanged keeps its next fire, and stays paused.
        """
        ...

    def remove(self, name: str, tx: Any = None) -> bool:
        """Delete a schedule; return False if there is none with that name."""
        ...

    def pause(self, name: str, tx: Any = None) -> bool:
        """Stop a schedule until `resume`; return False if there is none with that name."""
        ...

    def resume(self, name: str, tx: Any = None) -> bool:
        """Let a schedule fire again, from now on; return False if there is none with that name."""
        ...

    def update(
        self,
        name: str,
        *,
        when: str = KEEP,
        tz: str = KEEP,
        queue: str = KEEP,
        payload: Any = KEEP,
        priority: int = KEEP,
        expires: Duration | None = KEEP,
        max_attempts: int | None = KEEP,
        catch_up: str = KEEP,
        paused: bool = KEEP,
        headers: Mapping[str, str] | None = KEEP,
        tx: Any = None,
    ) -> bool:
        """Change the given settings and keep the others; return False if there is no schedule with that name.

        With a new *when*, the first fire is after now.
        """
        ...

    def get(self, name: str) -> Schedule | None:
        """Return a schedule; None if there is none with that name."""
        ...

    def soonest(self) -> datetime | None:
        """Return when the next schedule fires; None if none will."""
        ...

    def upcoming(self, name: str, count: int = 10) -> list[datetime]:
        """Return the next *count* times at which a schedule fires; none for one that is paused or unknown."""
        ...

    def tick(self, now: datetime | None = None) -> list[Fire]:
        """Fire all due schedules, by the database's clock or at *now*; return the fires."""
        ...

    def next_after(self, when: str, moment: datetime, tz: str = "UTC") -> datetime:
        """Return the first fire of *when* after *moment*, in UTC. Needs no database, and is not awaited."""
        ...

    # Last, because a type checker would take ``list`` for this method below it.
    def list(self) -> list[Schedule]:
        """Return all schedules, by name."""
        ...


class AsyncSchedules(Protocol):
    """`Schedules`, awaited."""

    async def add(
        self,
        name: str,
        when: str,
        queue: str,
        payload: Any = None,
        *,
        tz: str = "UTC",
        priority: int = 0,
        expires: Duration | None = None,
        max_attempts: int | None = None,
        catch_up: str = "all",
        paused: bool = False,
        headers: Mapping[str, str] | None = None,
        tx: Any = None,
    ) -> None: ...

    async def remove(self, name: str, tx: Any = None) -> bool: ...

    async def pause(self, name: str, tx: Any = None) -> bool: ...

    async def resume(self, name: str, tx: Any = None) -> bool: ...

    async def update(
        self,
        name: str,
        *,
        when: str = KEEP,
        tz: str = KEEP,
        queue: str = KEEP,
        payload: Any = KEEP,
        priority: int = KEEP,
        expires: Duration | None = KEEP,
        max_attempts: int | None = KEEP,
        catch_up: str = KEEP,
        paused: bool = KEEP,
        headers: Mapping[str, str] | None = KEEP,
        tx: Any = None,
    ) -> bool: ...

    async def get(self, name: str) -> Schedule | None: ...

    async def soonest(self) -> datetime | None: ...

    async def upcoming(self, name: str, count: int = 10) -> list[datetime]: ...

    async def tick(self, now: datetime | None = None) -> list[Fire]: ...

    def next_after(self, when: str, moment: datetime, tz: str = "UTC") -> datetime: ...

    # Last, because a type checker would take ``list`` for this method below it.
    async def list(self) -> list[Schedule]: ...


class Lock(Protocol):
    """A lock that has one holder at a time, among all processes, by the database's clock.

    The holder is the handle that acquired it, until it releases the lock or the ttl ends.  The lock is not reentrant.
    Entering the handle acquires the lock or raises `LockHeld`; leaving releases it.
    """

    name: str

    @property
    def fence(self) -> int | None:
        """A number that grows with every holder; None while this handle does not hold the lock.

        Send it to the resource that the lock protects, and let the resource refuse numbers below the highest it has
        seen: then a holder that was suspended for longer than its ttl does no harm.
        """
        ...

    def acquire(self, wait: Duration = 0) -> bool:
        """Acquire the lock, waiting up to *wait* seconds for it; return False if another holder still has it."""
        ...

    def renew(self) -> bool:
        """Restart the ttl; return False if it had ended and the lock is lost."""
        ...

    def release(self) -> bool:
        """Release the lock; return False if its ttl had ended."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class AsyncLock(Protocol):
    """`Lock`, awaited."""

    name: str

    @property
    def fence(self) -> int | None: ...

    async def acquire(self, wait: Duration = 0) -> bool: ...

    async def renew(self) -> bool: ...

    async def release(self) -> bool: ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...


class Results(Protocol):
    """The results of tasks, for other processes to wait for; or other values with a name.

    An id is the number of a task, or a string of one's own; 7 and ``"7"`` are two ids.
    """

    def save(self, id: int | str, value: Any, ttl: Duration = 3600, tx: Any = None) -> None:
        """Save a value for *ttl* seconds, replacing an earlier one."""
        ...

    def get(self, id: int | str, default: Any = None) -> Any:
        """Return the value, which may be None; *default* if there is none."""
        ...

    def wait(self, id: int | str, timeout: Duration) -> Any:
        """Wait until the value is committed, and return it; raise `TimedOut` after *timeout* seconds.

        If the id is a task's and the task is dead or dies, raise `TaskFailed` with the reason and the error.
        """
        ...

    def sweep(self) -> int:
        """Delete expired results; return their number."""
        ...


class AsyncResults(Protocol):
    """`Results`, awaited."""

    async def save(self, id: int | str, value: Any, ttl: Duration = 3600, tx: Any = None) -> None: ...

    async def get(self, id: int | str, default: Any = None) -> Any: ...

    async def wait(self, id: int | str, timeout: Duration) -> Any: ...

    async def sweep(self) -> int: ...
