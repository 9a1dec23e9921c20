"""From tasks that were claimed to calls that can be made."""

from collections.abc import Mapping
from time import monotonic
from typing import Any

from ..app.registry import Registry
from ..app.running import Refused, batch_arguments, decode, resolve
from ..records import Task
from .endings import Endings
from .failures import CRASHED
from .routines import Kits, Routine
from .run import Run


class Preparation:
    """Makes runs of tasks, and has ready what each of them needs.  What cannot be run is refused here."""

    def __init__(self, app: Registry, routines: Mapping[str, Routine], kits: Kits, endings: Endings) -> None:
        self._app = app
        self._routines = routines
        self._kits = kits
        self._endings = endings

    def runs_of(self, tasks: list[Task[Any]]) -> list[Run]:
        """The runs for *tasks*, which were claimed a moment ago: one for each, or for a batch of them."""
        got = monotonic()
        runs: list[Run] = []
        batches: dict[Routine, list[Task[Any]]] = {}
        for task in tasks:
            try:
                routine = self._routines[task.payload["task"]]
            except (KeyError, TypeError):
                self._refuse(task)
                continue
            if routine.batch == 1:
                runs.append(Run([task], routine, got))
            else:
                batches.setdefault(routine, []).append(task)
        for routine, company in batches.items():
            for begin in range(0, len(company), routine.batch):
                runs.append(Run(company[begin : begin + routine.batch], routine, got))
        return runs

    def prepare(self, run: Run) -> bool:
        """Have all that the run needs; False if it has come to an end already."""
        if run.stopped:
            return False
        routine = run.routine
        every: list[dict[str, Any]] = []
        good: list[Task[Any]] = []
        for task in run.tasks:
            if run.expired(task):
                # The database's clock has the last word: it buries the task, or hands it out again.
                self._endings.give_back(task, routine)
                continue
            try:
                if task.lapsed and routine.declaration.on_crash == "fail":
                    raise Refused(f"{CRASHED}: whoever ran {routine.name} before did not come back")
                every.append(decode(routine.declaration, task.payload))
            except Refused as error:
                self._endings.refused(task, routine, error)
            else:
                good.append(task)
        if not good:
            return False
        run.tasks = good
        run.arguments = every[0] if routine.batch == 1 else batch_arguments(routine.declaration, every)
        if routine.context is not None and not routine.apart:
            run.context = self._kits.context(good[0], routine.inline)
            run.arguments[routine.context] = run.context
        return True

    def _refuse(self, task: Task[Any]) -> None:
        """Nothing is declared for *task*; what is wrong with it is told as whoever runs tasks tells it."""
        try:
            resolve(self._app, task.payload)
        except Refused as error:
            self._endings.refused(task, None, error)
