"""Schedules: tasks at certain times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from ..arguments import Duration
from ..records import Fire, Schedule
from .terms import KEEP


class Schedules(Protocol):
    """What makes tasks at certain times: the schedules of a database, which any number of processes may fire.

    A fire is a task that is due at the moment of the fire; its headers say which schedule it is of
    (``eventkit-schedule``) and that moment (``eventkit-fire``).  Each fire comes to exactly one task.
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
        """Keep a schedule, in the place of one of the same name.

        *when* is a cron expression of five fields, or of six with the seconds first, ``@hourly`` and the like, or an
        interval as in ``"@every 1h30m"``; *tz* is the zone whose clock it speaks of.  A task *expires* so long after
        its fire.  Fires that nobody was there for are made up for by *catch_up*: ``"all"``, the first 64 of them;
        ``"latest"``; or ``"none"``, unless it is less than a minute late.

        A schedule that is there already and keeps its time keeps its next fire as well, and stays paused.
        """
        ...

    def remove(self, name: str, tx: Any = None) -> bool:
        """Forget a schedule; False if there is none of that name."""
        ...

    def pause(self, name: str, tx: Any = None) -> bool:
        """Let a schedule fire no more until `resume`; False if there is none of that name."""
        ...

    def resume(self, name: str, tx: Any = None) -> bool:
        """Let a schedule fire again, from now on; False if there is none of that name."""
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
        """Change what is given and leave the rest as it is; False if there is no schedule of that name.

        Another time has its first fire after now.
        """
        ...

    def get(self, name: str) -> Schedule | None:
        """A schedule; None if there is none of that name."""
        ...

    def soonest(self) -> datetime | None:
        """When the next schedule fires; None where none will."""
        ...

    def upcoming(self, name: str, count: int = 10) -> list[datetime]:
        """The next *count* moments at which a schedule fires; none for one that is paused or unknown."""
        ...

    def tick(self, now: datetime | None = None) -> list[Fire]:
        """Fire everything that is due, by the database's clock or at *now*; the fires."""
        ...

    def next_after(self, when: str, moment: datetime, tz: str = "UTC") -> datetime:
        """When *when* fires first after *moment*, in UTC; asks no database, and is not awaited."""
        ...

    # Last, because below it ``list`` would mean this method to a type checker.
    def list(self) -> list[Schedule]:
        """All schedules, by name."""
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

    # Last, because below it ``list`` would mean this method to a type checker.
    async def list(self) -> list[Schedule]: ...
