"""Engines on a shop's file, by both dialects."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from shop import Base
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.util import greenlet_spawn


@pytest.fixture(params=["sqlite+apsw", "sqlite+apsw_async"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Return the dialect of the test; one body serves both, see below."""
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test of the asyncio dialect as SQLAlchemy runs a function passed to `run_sync()`."""
    if pyfuncitem.funcargs.get("scheme") != "sqlite+apsw_async":
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(greenlet_spawn(pyfuncitem.obj, **arguments))
    return True


@pytest.fixture
def connect_to(scheme: str, tmp_path: Path) -> Iterator[Callable[..., sa.Engine]]:
    """Return a function that makes engines on one file; its argument follows the file's name in the URL."""
    engines = []

    def connect_to(query: str = "", **options: object) -> sa.Engine:
        engines.append(_create_engine(f"{scheme}:///{tmp_path}/shop.db{query}", **options))
        return engines[-1]

    yield connect_to
    for engine in engines:
        _run(engine, engine.dispose)


@pytest.fixture
def engine(connect_to) -> sa.Engine:
    engine = connect_to()
    _run(engine, Base.metadata.create_all, engine)
    return engine


def _create_engine(url: str, **options: object) -> sa.Engine:
    if sa.make_url(url).get_dialect().is_async:
        return create_async_engine(url, **options).sync_engine
    return sa.create_engine(url, **options)


def _run(engine: sa.Engine, call: Callable[..., object], *arguments: object) -> None:
    if engine.dialect.is_async:
        asyncio.run(greenlet_spawn(call, *arguments))
    else:
        call(*arguments)
