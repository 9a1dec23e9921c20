"""What may be asked of a stream at random."""

from typing import Any

from hypothesis import strategies as st

from eventkit.records import NewEvent

Call = tuple[str, dict[str, Any]]

POSITIONS = st.integers(0, 12)
CONSUMERS = st.sampled_from(["ann", "ben"])
EVENTS = st.builds(
    NewEvent,
    payload=st.none(),
    key=st.sampled_from([None, "a"]),
    headers=st.sampled_from([None, {"trace": "1"}]),
    dedup=st.sampled_from([None, None, "x", "y", "z"]),
)

BATCHES = st.lists(EVENTS, max_size=4)


def _calls(**methods: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Call]]:
    """Some calls of the methods, each with the arguments that are drawn for it."""
    calls = {name: st.tuples(st.just(name), arguments) for name, arguments in methods.items()}
    return st.lists(st.sampled_from(sorted(calls)).flatmap(calls.__getitem__), max_size=5)


_moves = st.fixed_dictionaries({"consumer": CONSUMERS, "where": POSITIONS})
SCRIPTS = _calls(
    publish=st.fixed_dictionaries({"event": EVENTS}),
    publish_many=st.fixed_dictionaries({"events": BATCHES, "plain": st.booleans()}),
    publish_elsewhere=st.just({}),
    spoil=st.just({}),
    save_offset=_moves,
    seek=_moves,
)
