"""What an application wants to be called with when tasks end."""

import asyncio
import inspect
import logging
from functools import partial
from typing import Any

from ..app.registry import Hook, Registry
from ..records import Task
from .routines import Kits
from .run import Run, fields
from .threads import Threads

logger = logging.getLogger("eventkit.worker")


class Hooks:
    """Calls hooks, once each, beside whatever else goes on.  One that fails is logged, and harms nothing."""

    def __init__(self, app: Registry, kits: Kits, threads: Threads) -> None:
        self._success = app.success_hooks
        self._failure = app.failure_hooks
        self._kits = kits
        self._threads = threads
        self._calls: set[asyncio.Task[None]] = set()
        self.any_success = bool(self._success)
        self.any_failure = bool(self._failure)

    def succeeded(self, run: Run, task: Task[Any], result: Any) -> None:
        """*task* is done."""
        self._begin((*run.routine.declaration.on_success, *self._success), run, task, result)

    def failed(self, run: Run, task: Task[Any], error: BaseException) -> None:
        """A run of *task* has failed."""
        self._begin((*run.routine.declaration.on_failure, *self._failure), run, task, error)

    async def ended(self) -> None:
        """Return when no hook is running."""
        while self._calls:
            await asyncio.wait(self._calls)

    def _begin(self, hooks: tuple[Hook, ...], run: Run, task: Task[Any], outcome: Any) -> None:
        context = run.context or self._kits.context(task, run.routine.inline)
        call = asyncio.ensure_future(self._call(hooks, run, context, outcome))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, hooks: tuple[Hook, ...], run: Run, context: Any, outcome: Any) -> None:
        for hook in hooks:
            try:
                if inspect.iscoroutinefunction(hook):
                    await hook(context, outcome)
                else:
                    await self._threads.call(partial(hook, context, outcome))
            except Exception:
                more = fields(context.task, run.routine)
                logger.exception("a hook of %s failed: %r", run.routine.name, hook, extra=more)
