"""What may be asked of a queue at random.

A whole call is drawn at once from the list of all there can be: what is drawn piece by piece takes longer than
the call that it is for.
"""

from itertools import product
from typing import Any

from hypothesis import strategies as st

import eventkit

from .machines import TICK
from .model_task import Wish

Arguments = st.SearchStrategy[dict[str, Any]]
Call = tuple[str, dict[str, Any]]


def _one(choices: list[Any]) -> st.SearchStrategy[Any]:
    """One of the choices."""
    return st.integers(0, len(choices) - 1).map(lambda place: choices[place])


def _any(**arguments: list[Any]) -> Arguments:
    """Any combination of the arguments."""
    return _one([dict(zip(arguments, values, strict=True)) for values in product(*arguments.values())])


KEYS = ["a", "b", "c"]
_WISHES = _one(
    [
        Wish(None, *choice)
        for choice in product(
            [0, 0, 0, 0, -1, 1, 2],  # due
            [0, 0, 1, -1],  # priority
            [None, None, 1, 2],  # max_attempts
            [None, None, 0, 1, 2, 3],  # expires
            [None, None, *KEYS],  # key
            [{}, {"trace": "1"}],  # headers
        )
    ]
)
BATCHES = st.lists(_WISHES, max_size=6)
_WHICH = [0, 0, 0, 1, 1, 2, 3, 5, 8]
"""Which task: the first ones mostly, which are held or new."""
_SOME = [[], [0], [0, 1], [1, 0], [0, 0], [0, 5], [2, 1, 0]]
TICKS = st.sampled_from([1, 1, 2, 3, 9])
_SETTINGS: dict[str, list[Any]] = {
    "max_attempts": [None, 1, 2],
    "lease": [None, 1, 2],
    "max_size": [None, None, 2, 5],
    "rate": [(None, None), (1, None), (1, 3)],
    "max_running": [None, None, 1, 3],
    "keep_done": [None, 0, 2],
    "key_ttl": [None, 0, 1, 3],
    "dead_letter_to": [None, True],
}
SETTINGS = st.lists(_one([(name, value) for name, values in _SETTINGS.items() for value in values]), max_size=5)
"""The names of settings, and values for them; those of ``rate`` come with a burst."""

PUT_IN = {
    "enqueue": st.fixed_dictionaries({"wish": _WISHES, "exact": st.booleans()}),
    "enqueue_many": st.fixed_dictionaries({"wishes": BATCHES, "plain": st.sampled_from([False, False, True])}),
    "spoil": _any(),
}
TAKE_OUT = {
    "claim": _any(limit=[1, 2, 3, 4], lease=[None, None, 1, 2]),
    "receive": _any(limit=[1, 2, 3]),
}
WORK = {
    "work": _any(batch=[1, 2, 3], count=[1, 2, 3, 4]),
    "handle": _any(which=_WHICH, error=[None, eventkit.Retry(TICK, "text"), eventkit.Permanent("text")]),
}
FINISH = {
    "ack": _any(which=_WHICH, result=[None, {"done": True}]),
    "ack_many": _any(chosen=_SOME),
    "retry": _any(which=_WHICH, delay=[None, None, 0, 1, 2], error=[None, "text"]),
    "fail": _any(which=_WHICH),
    "release": _any(which=_WHICH),
    "extend": _any(which=_WHICH, lease=[1, 2, 3]),
}
_CANCEL = {"cancel": _any(which=_WHICH, running=[False, True])}
CLEAR = _CANCEL | {
    "purge": _any(state=["scheduled", "ready", "leased", "dead", "done"]),
    "purge_dead": _any(age=[None, 0, 1, 2]),
    "requeue": _any(chosen=[None, *_SOME]),
    "dead": _any(limit=[1, 2, 9]),
    "sweep": _any(),
    "try_keys": _any(),
}
INTERRUPT = {"reopen": _any(), "pause": _any(), "resume": _any()}

# Within a transaction the order of moments in one tick cannot be asked for, so no task that has an id already
# becomes due there, and none is enqueued for a moment of the caller's.
IN_TRANSACTION = PUT_IN | TAKE_OUT | FINISH | _CANCEL
IN_TRANSACTION["enqueue"] = st.fixed_dictionaries({"wish": _WISHES, "exact": st.just(False)})
IN_TRANSACTION["retry"] = _any(which=_WHICH, delay=[1, 2], error=[None, "text"])

_WEIGHTS = {"enqueue_many": 2, "claim": 4, "resume": 4, "try_keys": 3}
"""What lets others do something is wanted more often."""


def scripts(methods: dict[str, Arguments]) -> st.SearchStrategy[list[Call]]:
    """Some calls of the methods."""
    calls = {name: st.tuples(st.just(name), arguments) for name, arguments in methods.items()}
    names = st.sampled_from([name for name in methods for _ in range(_WEIGHTS.get(name, 1))])
    return st.lists(names.flatmap(calls.__getitem__), max_size=4)
