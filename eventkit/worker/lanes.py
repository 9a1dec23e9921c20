"""Coroutines that are begun before anybody knows whether they have to wait."""

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any


@types.coroutine
def go_on(coroutine: Coroutine[Any, Any, Any], variables: Context, yielded: Any) -> Generator[Any, Any, Any]:
    """The rest of *coroutine*, whose first step has *yielded* what it waits for; to be awaited by the same task.

    Each step has the context variables of the first one.
    """
    while True:
        try:
            answer = yield yielded
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            step: Callable[[Any], Any] = coroutine.throw
            answer = error
        else:
            step = coroutine.send
        try:
            yielded = variables.run(step, answer)
        except StopIteration as end:
            return end.value
