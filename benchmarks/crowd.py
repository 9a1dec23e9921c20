"""Claims beside many other tasks: whether tasks that cannot be claimed slow down claims."""

from collections.abc import Iterator
from contextlib import ExitStack

from .kits import Kit
from .processes import Remote
from .report import Table, ratio, thousands, verdict
from .rounds import contest
from .settings import Settings

_STATES = ("nothing", "ready", "scheduled", "leased", "dead")
_BAR = 0.9


def measure(settings: Settings) -> Iterator[Table]:
    """Measure claim + ack, one by one, in queues with different other tasks."""
    crowd = settings.count(100_000, least=1000)
    count = settings.count(2_000, least=100)
    table = Table(
        "Claim + ack, one by one, beside a crowd",
        (f"beside it, {crowd:,} rows", "eventkit /s", "of the empty queue's (spread)", "bar", "reached"),
    )
    with ExitStack() as stack:
        kits = {state: stack.enter_context(Remote(Kit, settings.folder(f"crowd-{state}"))) for state in _STATES}
        for state, kit in kits.items():
            kit.call("crowd", state, crowd)
        result = contest(kits, "claim", count, rounds=settings.rounds, prepare=_fill)
    for state in _STATES:
        spread = result.ratio(state, "nothing")
        assert spread is not None
        bar = ("–", "–") if state == "nothing" else (f"≥ {_BAR}", verdict(spread.median >= _BAR))
        table.add([state, thousands(result.rate(state)), ratio(spread), *bar])
    yield table


def _fill(kit: Remote, count: int) -> None:
    kit.call("fill", count)
