"""The library beside a model of itself: thousands of random steps, each answer the one that plain Python gives."""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import pytest

from .clauses import proves

_REWRITTEN = ("model_queue", "model_stream", "queue_comparison", "queue_machine", "stream_machine")
pytest.register_assert_rewrite(*(f"{__package__}.{module}" for module in _REWRITTEN))

_QUEUE = ("Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8", "Q9", "Q10", "Q11", "Q12", "Q13", "Q15", "Q16", "G4", "T2")
_STREAM = ("S1", "S3", "S4", "S5", "S6", "S7", "S8", "G4")


Walk = Callable[..., None]


@pytest.fixture
def walk(connect: Callable[..., Any], url: str, flavour: str, caplog: pytest.LogCaptureFixture) -> Walk:
    """Makes some runs of so many steps with a machine; ``shrink=True`` makes a failure as short as it can be."""
    caplog.set_level("ERROR", "eventkit")  # Lost leases, which are warned of, are half of what is tried here.
    return partial(_walk, connect, url, flavour)


def _walk(
    connect: Callable[..., Any], url: str, flavour: str, machine: str, runs: int, steps: int, *, shrink: bool = False
) -> None:
    reason = "the models are walked by Hypothesis: pip install hypothesis"
    hypothesis = pytest.importorskip("hypothesis", reason=reason)
    stateful = pytest.importorskip("hypothesis.stateful", reason=reason)
    from .machines import Ground
    from .queue_machine import QueueMachine
    from .stream_machine import StreamMachine

    chosen = {"queue": QueueMachine, "stream": StreamMachine}[machine]
    ground = Ground(connect, url)
    # Other steps for each flavour and scheme, but the same ones every time: a failure is the change's, not the day's.
    seed = crc32(f"{flavour} {urlsplit(url).scheme} {runs}".encode())
    stateful.run_state_machine_as_test(
        hypothesis.seed(seed)(lambda: chosen(ground)),
        settings=hypothesis.settings(
            max_examples=runs,
            stateful_step_count=steps,
            # Which takes minutes, so whoever wants a shorter story runs the slow tests.
            phases=[hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if shrink else [])],
            database=None,
            deadline=None,
            # A step is a handful of real transactions, on a machine that has other work: slow is no defect here.
            suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
        ),
    )


@proves(*_QUEUE)
def test_a_queue_answers_as_its_model(walk: Walk) -> None:
    """Whatever is asked in whatever order, a queue holds and answers what its model does."""
    walk("queue", 40, 30)


@proves(*_STREAM)
def test_a_stream_answers_as_its_model(walk: Walk) -> None:
    """Whatever is asked in whatever order, a stream holds and answers what its model does."""
    walk("stream", 40, 30)


@pytest.mark.slow
@proves(*_QUEUE)
def test_a_queue_answers_as_its_model_for_long(walk: Walk) -> None:
    """Five thousand steps of a queue."""
    walk("queue", 100, 50, shrink=True)


@pytest.mark.slow
@proves(*_STREAM)
def test_a_stream_answers_as_its_model_for_long(walk: Walk) -> None:
    """Five thousand steps of a stream."""
    walk("stream", 100, 50, shrink=True)
