"""Decorators that name the clauses a test proves and the capabilities it needs."""

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
