"""Random calls on a queue and on a stream that move to another database in between, compared with their models.

The machines are those of the suite.  Where they would open another kit on the same database, the database is copied to
one of another kind, and the work goes on there; the model shows what a copy loses.
"""

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any
from zlib import crc32

import moving
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import rule, run_state_machine_as_test
from moving import Places

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.queue_calls import Ground
from eventkit.conformance.queue_machine import QueueMachine
from eventkit.conformance.stream_machine import StreamMachine

places = moving.places


class MovingGround(Ground):
    """A database that is another one after each reopening."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._kinds = cycle(("postgres", "postgres", "sqlite", "sqlite"))
        self.moves = 0
        super().__init__(eventkit.connect, places.fresh("sqlite"))

    def reopen(self) -> None:
        """Close the kit, copy the database, and connect to the copy."""
        self.kit.close()
        here, self._url = self._url, self._places.fresh(next(self._kinds))
        eventkit.copy(here, self._url)
        self.moves += 1
        self.kit = eventkit.connect(self._url)


class MovingQueue(QueueMachine):
    """A queue that moves often."""

    @rule()
    def move(self) -> None:
        """Move to another database."""
        self.reopen()


class MovingStream(StreamMachine):
    """A stream that moves often."""

    @rule()
    def move(self) -> None:
        """Move to another database."""
        self.reopen()


Walk = Callable[..., None]


@pytest.fixture
def walk(places: Places, caplog: pytest.LogCaptureFixture) -> Iterator[Walk]:
    """Make some runs of so many steps with a machine."""
    caplog.set_level("ERROR", "eventkit")  # Half of the calls are made with lost leases, which are logged as warnings.
    grounds: list[MovingGround] = []

    def walk(machine: type[Any], runs: int, steps: int) -> None:
        ground = MovingGround(places)
        grounds.append(ground)
        beginning: Any = seed(crc32(f"{machine.__name__} {runs}".encode()))(lambda: machine(ground))
        run_state_machine_as_test(
            beginning,
            settings=settings(
                max_examples=runs,
                stateful_step_count=steps,
                phases=[Phase.generate],
                database=None,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )
        assert ground.moves >= runs / 2

    yield walk
    for ground in grounds:
        ground.kit.close()


@proves("K8")
@pytest.mark.parametrize("machine", [MovingQueue, MovingStream])
@pytest.mark.parametrize(("runs", "steps"), [(8, 25), pytest.param(60, 50, marks=pytest.mark.slow)])
def test_a_machine_works_on_wherever_it_moves(walk: Walk, machine: type[Any], runs: int, steps: int) -> None:
    """Every answer is that of the model, which does not move."""
    walk(machine, runs, steps)
