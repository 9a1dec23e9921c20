"""Marks of tests: the clauses they prove, the capabilities they need, and the flavours they run in."""

import re

import pytest


def proves(*clauses: str) -> pytest.MarkDecorator:
    """Mark a test as proof of these clauses of the contract: it fails when one of them is broken."""
    return pytest.mark.proves(*clauses)


def clauses_of(test: object) -> list[str]:
    """Return the clauses that a test proves."""
    return [clause for mark in getattr(test, "pytestmark", []) if mark.name == "proves" for clause in mark.args]


def requires(*capabilities: str) -> pytest.MarkDecorator:
    """Skip the test on backends that do not declare these capabilities."""
    return pytest.mark.requires(*capabilities)


both_flavours = pytest.mark.parametrize("flavour", ["sync", "async"], indirect=True)
"""Run the test with a sync and with an async kit, in a module whose other tests run with a sync one."""

one_flavour = pytest.mark.parametrize("flavour", ["sync"], indirect=True)
"""Run the test with a sync kit, in a module whose other tests run with both: the flavours share what it proves."""

_IN_SYNC = re.compile(
    r".*\.test_(chaining|claim|enqueue|functions|headers|history|housekeeping|keys|leases|limits|models|payloads"
    r"|plain_calls|pruning|queue_settings|queue_views|retention|schedules|streams|task_group_races|task_groups|ticks)"
)
"""The modules whose tests run with a sync kit, except for those with `both_flavours`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of these modules in one flavour.  pytest finds this function in the module that imports the suite."""
    chosen = any("flavour" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if _IN_SYNC.fullmatch(metafunc.function.__module__) and "flavour" in metafunc.fixturenames and not chosen:
        metafunc.definition.add_marker(pytest.mark.parametrize("flavour", ["sync"], indirect=True))
