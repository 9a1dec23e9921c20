"""Fixtures for the tests of apps: an app bound to a fresh kit of the test's flavour, each on one of the databases."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventkit import App, AsyncApp
from eventkit.conformance.flavours import Loop, unwrapped
from eventkit.testing import Ran, drain, drain_async

__all__ = ["app", "drained", "now", "url"]


@pytest.fixture
def url(request: pytest.FixtureRequest, flavour: str, tmp_path: Path) -> str:
    """Return the URL of a fresh database: SQLite for blocking calls, and Postgres for asyncio."""
    if flavour == "sync":
        return f"sqlite:///{tmp_path}/shop.db"
    url: str = request.getfixturevalue("emptied_url")
    return url


@pytest.fixture
def app(kit: Any, loop: Loop | None) -> Any:
    """Return an app on the fresh database."""
    app: Any = App() if loop is None else AsyncApp()
    app.bind(unwrapped(kit))
    return app


@pytest.fixture
def now(loop: Loop | None) -> Callable[[Any], Any]:
    """Return the result of an answer, which the test awaits if the flavour is async."""

    def now(answer: Any) -> Any:
        assert inspect.isawaitable(answer) is (loop is not None)
        return answer if loop is None else loop.run(answer)

    return now


@pytest.fixture
def drained(app: Any, loop: Loop | None) -> Callable[..., list[Ran]]:
    """Return a function that drains the app."""

    def drained(*, raising: bool = True) -> list[Ran]:
        return drain(app, raising=raising) if loop is None else loop.run(drain_async(app, raising=raising))

    return drained
