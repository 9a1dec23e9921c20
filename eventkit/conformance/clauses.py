"""Which clauses a test proves, and which capabilities it needs."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])


def proves(*clauses: str) -> Callable[[F], F]:
    """The test fails when one of these clauses of the contract is broken."""

    def mark(test: F) -> F:
        test.clauses = clauses  # type: ignore[attr-defined]  # read by the test that looks for clauses without one
        return test

    return mark


def requires(*capabilities: str) -> pytest.MarkDecorator:
    """The test needs a backend with these capabilities, and is skipped, with that reason, on others."""
    return pytest.mark.requires(*capabilities)
