"""Storing what an application has declared for the database: settings of queues, and schedules.

A schedule carries the application's name in a header, so that one which is declared no more can be told from those
that somebody else has added, and is removed.
"""

import logging
from collections.abc import Iterator
from typing import Any

from ..records import Schedule
from .registry import Registry

logger = logging.getLogger("eventkit")

MARK = "eventkit-app"
"""The header of a schedule, and of the tasks it makes, that says which application has declared it."""


def install(app: Any, kit: Any) -> None:
    """Store what *app* has declared."""
    for name, settings in _settings(app):
        kit.queue(name).configure(**settings)
    for schedule in _schedules(app):
        kit.schedules.add(**schedule)
    for name in _abandoned(app, kit.schedules.list()):
        kit.schedules.remove(name)


async def install_async(app: Any, kit: Any) -> None:
    """Store what *app* has declared."""
    for name, settings in _settings(app):
        await kit.queue(name).configure(**settings)
    for schedule in _schedules(app):
        await kit.schedules.add(**schedule)
    for name in _abandoned(app, await kit.schedules.list()):
        await kit.schedules.remove(name)


def _settings(app: Registry) -> Iterator[tuple[str, dict[str, Any]]]:
    for task in app.tasks.values():
        if task.settings:
            yield task.queue, task.settings


def _schedules(app: Any) -> Iterator[dict[str, Any]]:
    for one in app.schedules:
        task = one.task
        yield {
            "name": one.name,
            "when": one.when,
            "queue": task.queue,
            "payload": {"task": task.name, "args": one.args},
            "tz": one.tz,
            "max_attempts": None if task.retries is None else task.retries + 1,
            "catch_up": one.catch_up,
            "headers": {MARK: app.name},
        }


def _abandoned(app: Any, stored: list[Schedule]) -> Iterator[str]:
    """The schedules that *app* has stored and does not declare any more."""
    declared = {one.name for one in app.schedules}
    for schedule in stored:
        if schedule.headers.get(MARK) == app.name and schedule.name not in declared:
            logger.warning("schedule %r is removed: app %r does not declare it any more", schedule.name, app.name)
            yield schedule.name
