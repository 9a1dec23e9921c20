"""All that the author of a backend writes to know whether it keeps the contract: an import, and a fixture."""

import pytest

from eventkit.conformance import *


@pytest.fixture
def url(tmp_path):
    """A fresh database."""
    return f"elsewhere:///{tmp_path}/test.db"


@requires("elsewhere")
def test_what_the_backend_declares_it_can(kit):
    """A test that asks for a capability runs where a backend declares it."""
    assert kit.queue("emails").size() == 0


@requires("elsewhere", "nowhere")
def test_what_it_does_not_declare(kit):
    """And is skipped where none does."""
    raise AssertionError
