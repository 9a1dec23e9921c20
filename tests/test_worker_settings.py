"""Settings of a worker, and those it refuses: J7."""

from datetime import timedelta
from typing import Any

import pytest

from eventkit import App
from eventkit.conformance import proves
from eventkit.worker.lifecycle import Shared, settings_of

WRONG: dict[str, Any] = {
    "concurrency": 0,
    "prefetch": -1,
    "processes": 0,
    "shutdown_timeout": -1,
    "lease": 0.5,
    "db_retry_initial_ms": 99,
    "db_retry_max_ms": 300_001,
    "db_retry_max_attempts": 10_001,
    "notify_poll_interval_ms": 999,
    "name": "",
    "queues": ["a", ("a", 2)],
    "url": 7,
}


@proves("J7")
def test_all_wrong_settings_are_reported_at_once() -> None:
    """The error names each setting, before the worker connects."""
    with pytest.raises(ValueError, match="are invalid") as caught:
        App("nonsense://").worker(**WRONG)
    lines = str(caught.value).split("\n")
    assert lines[0] == f"{len(WRONG)} of the worker's settings are invalid:"
    assert len(lines) == len(WRONG) + 1
    for name, line in zip(WRONG, lines[1:], strict=True):
        assert {"name": "worker", "queues": "queue 'a'"}.get(name, name) in line
        with pytest.raises(ValueError, match="1 of the worker's settings are invalid"):
            settings_of({name: WRONG[name]})


@proves("J7")
def test_settings_that_contradict_each_other_or_are_unknown_are_refused() -> None:
    """A contradiction is reported beside all other errors."""
    with pytest.raises(ValueError, match="db_retry_initial_ms is at most db_retry_max_ms"):
        settings_of({"db_retry_initial_ms": 60_000})
    with pytest.raises(ValueError, match="2 of the worker's settings .*\n- concurrency .*\n- db_retry_initial_ms "):
        settings_of({"concurrency": 0, "db_retry_initial_ms": 60_000})
    with pytest.raises(TypeError, match="no setting concurency; the settings are: .*concurrency"):
        App("nonsense://").worker(concurency=3)


@proves("J7")
def test_what_is_right_is_taken() -> None:
    app = App("nonsense://")
    app.task(queue="c")(nothing)
    given = {"lease": timedelta(minutes=1), "queues": ["a", ("b", 2)], "processes": None}
    shared = Shared(app, settings_of(given), lambda: None)
    assert shared.lease_ms == 60_000
    assert shared.weights == {"a": 1, "b": 2}
    assert Shared(app, settings_of({}), lambda: None).weights == {"c": 1}
    assert shared.processes.free >= 1


def nothing() -> None: ...
