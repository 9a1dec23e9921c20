"""What every test of the suite starts from.  The fixture ``url`` is the backend's."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import eventkit
from eventkit.kit import backend_of

from .flavours import Blocking, Loop


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest) -> str:
    """The flavour of kit that the test runs with."""
    flavour: str = request.param
    return flavour


@pytest.fixture
def connect(request: pytest.FixtureRequest, flavour: str) -> Iterator[Callable[..., Any]]:
    """Connects to a URL with the test's flavour; what it gives looks like a sync kit and is closed after the test."""
    marker = request.node.get_closest_marker("requires")
    if marker is not None:
        missing = set(marker.args) - backend_of(request.getfixturevalue("url")).capabilities
        if missing:
            pytest.skip(f"the backend does not declare {', '.join(sorted(missing))}")
    kits: list[Any] = []
    loop = Loop() if flavour == "async" else None

    def connect(url: str, **options: Any) -> Any:
        if loop is None:
            kits.append(eventkit.connect(url, **options))
        else:
            kits.append(Blocking(loop.run(eventkit.connect_async(url, **options)), loop))
        return kits[-1]

    yield connect
    for kit in kits:
        kit.close()
    if loop is not None:
        loop.close()


@pytest.fixture
def kit(connect: Callable[..., Any], url: str) -> Any:
    """A kit on the fresh database."""
    return connect(url)
