"""The tests of a backend's author: an import of the suite, and two fixtures."""

import pytest

from eventkit.conformance import *


@pytest.fixture
def url(tmp_path):
    """Return the URL of a fresh database."""
    return f"elsewhere:///{tmp_path}/test.db"


@pytest.fixture
def left_out():
    """Return the clauses of outboxes, inboxes, histories, overviews, lists, changes, limits over queues, and groups."""
    groups = {"S11", "S12", "S13", "S14", "S15", "S16", "Q24", "Q25"}
    return {"O1", "O2", "T1", "T2", "T3", "T4", "T5", "T6", "H3", "H5", "N6", "W7", "Q23"} | groups


@requires("elsewhere")
def test_what_the_backend_declares_it_can(kit):
    """A test that requires a capability runs where a backend declares it."""
    assert kit.queue("emails").size() == 0


@requires("elsewhere", "nowhere")
def test_what_it_does_not_declare(kit):
    """A test that requires a missing capability is skipped."""
    raise AssertionError
