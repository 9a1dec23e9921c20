"""`drain`: running here and now whatever a worker would have to do, in each flavour."""

import inspect
from typing import Any

from ..app.application import Application
from .rounds import Plan, Ran, Rounds, is_async


def drain(app: Application, *, raising: bool = True) -> list[Ran]:
    """Run everything that is due: tasks, and those they enqueue; schedules; subscribers and listeners.

    It ends when nothing is due.  What a function raises, but for `Retry` and `Snooze`, is raised here, after the task
    was told of it as by a worker; with ``raising=False`` it is in the list, and the others go on.  A retry is due after
    its delay, so `advance` and drain again.  Declared schedules are stored first; rates and pauses hold.
    """
    kit = _bound(app)
    if is_async(kit):
        raise TypeError("the app is bound to an async kit: await drain_async(app)")
    rounds = Rounds(app, kit, raising)
    _run(rounds.plan())
    return rounds.ran


async def drain_async(app: Application, kit: Any = None, *, raising: bool = True) -> list[Ran]:
    """`drain`, awaited; plain functions run in a thread, as they do in a worker.

    An `App` that is bound to a kit that blocks has *kit* as well, an async one of the same database.
    """
    bound = _bound(app)
    kit = bound if kit is None else kit
    if not is_async(kit):
        raise TypeError("drain_async() needs an async kit: bind one, or drain_async(app, kit), or drain(app)")
    rounds = Rounds(app, kit, raising)
    await _run_async(rounds.plan())
    return rounds.ran


def _run(plan: Plan) -> None:
    try:
        step = next(plan)
        while True:
            try:
                answer = step()
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration:
        return


async def _run_async(plan: Plan) -> None:
    try:
        step = next(plan)
        while True:
            try:
                answer = step()
                answer = await answer if inspect.isawaitable(answer) else answer
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration:
        return


def _bound(app: Application) -> Any:
    if app.bound is None:
        raise RuntimeError("a drain runs what is in the test's database: app.bind(kit) first, so that it is no other")
    return app.bound
