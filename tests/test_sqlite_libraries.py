"""One process, one SQLite library per file (G5)."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.processes import spawn

OTHER = {"sqlite+apsw": "sqlite+pysqlite", "sqlite+pysqlite": "sqlite+apsw"}


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def foreign(scheme: str, path: str, kind: str) -> Iterator[Any]:
    """Yield a transaction on the file at *path*, through the library of *scheme*."""
    engine = sa.create_engine(f"{scheme}:///{path}")
    if kind == "Session":
        with Session(engine) as session:
            yield session
    elif kind == "Connection":
        with engine.connect() as connection:
            yield connection
    else:
        raw: Any = sqlite3.connect(path) if "pysqlite" in scheme else apsw.Connection(path)
        raw.execute("BEGIN")
        yield raw
        raw.execute("ROLLBACK")
        raw.close()
    engine.dispose()


@proves("G5")
@pytest.mark.parametrize("kind", ["Session", "Connection", "raw connection"])
def test_a_transaction_of_the_other_library_is_refused(scheme: str, tmp_path: Path, kind: str) -> None:
    """The message names the URL that the engine should have, and nothing is written."""
    with eventkit.connect(f"{scheme}:///{tmp_path}/shop.db") as kit:
        with (
            foreign(OTHER[scheme], f"{tmp_path}/shop.db", kind) as tx,
            pytest.raises(
                eventkit.ForeignTransaction, match=rf"with {scheme.replace('+', '.')}:///{tmp_path}/shop.db$"
            ),
        ):
            kit.stream("t").publish(1, tx=tx)
        assert kit.stream("t").head() == 0


@proves("G5")
def test_aiosqlite_is_the_standard_library(tmp_path: Path) -> None:
    """An async engine on ``sqlite+aiosqlite`` is refused by a kit on apsw."""

    async def main() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
        async with eventkit.connect_async(f"sqlite:///{tmp_path}/shop.db") as kit, engine.connect() as connection:
            with pytest.raises(
                eventkit.ForeignTransaction,
                match=rf"async engine with sqlite\+apsw_async:///{tmp_path}/shop.db and the kit with sqlite\+apsw:///",
            ):
                await kit.stream("t").publish(1, tx=connection)
            assert await kit.stream("t").head() == 0
        await engine.dispose()

    asyncio.run(main())


@proves("G5")
def test_an_async_engine_on_apsw_is_refused_by_a_kit_on_the_standard_library(tmp_path: Path) -> None:
    """The message names a matching pair."""

    async def main() -> None:
        engine = create_async_engine(f"sqlite+apsw_async:///{tmp_path}/shop.db")
        async with eventkit.connect_async(f"sqlite+pysqlite:///{tmp_path}/shop.db") as kit:
            async with engine.connect() as connection:
                with pytest.raises(eventkit.ForeignTransaction, match=r"sqlite\+aiosqlite:///.* kit with sqlite\+py"):
                    await kit.stream("t").publish(1, tx=connection)
            assert await kit.stream("t").head() == 0
        await engine.dispose()

    asyncio.run(main())


def test_the_url_in_the_message_can_be_used(tmp_path: Path) -> None:
    """Odd characters of the file name are escaped."""
    path = tmp_path / "a b#c?.db"
    url = f"sqlite+apsw:///{tmp_path}/a%20b%23c%3F.db"
    with eventkit.connect(url) as kit, foreign("sqlite+pysqlite", str(path), "raw connection") as tx:
        with pytest.raises(eventkit.ForeignTransaction) as refusal:
            kit.stream("t").publish(1, tx=tx)
        assert str(refusal.value).endswith(url)


@proves("G5")
@pytest.mark.parametrize("kind", ["Session", "Connection", "raw connection"])
@pytest.mark.parametrize("other", ["file", "copy", "memory"])
def test_a_transaction_of_another_database_is_refused(scheme: str, tmp_path: Path, kind: str, other: str) -> None:
    """Another file, one with the same content, and a database in memory are refused."""
    with eventkit.connect(f"{scheme}:///{tmp_path}/shop.db") as kit:
        elsewhere = ":memory:" if other == "memory" else f"{tmp_path}/other.db"
        if other == "copy":
            with eventkit.connect(f"{scheme}:///{elsewhere}"):
                pass
        named = "in memory" if other == "memory" else elsewhere
        with (
            foreign(scheme, elsewhere, kind) as tx,
            pytest.raises(eventkit.ForeignTransaction, match=f"{named}, and the kit to {tmp_path}/shop.db"),
        ):
            kit.stream("t").publish(1, tx=tx)


def test_a_second_kit_through_the_other_library_is_refused(scheme: str, tmp_path: Path) -> None:
    """It is refused as long as the first kit is open, in both flavours, and by any name of the file."""
    (tmp_path / "link.db").symlink_to(tmp_path / "shop.db")

    async def connect_async(url: str) -> None:
        await (await eventkit.connect_async(url)).close()

    with eventkit.connect(f"{scheme}:///{tmp_path}/shop.db") as kit:
        for name in ("shop.db", "link.db"):
            url = f"{OTHER[scheme]}:///{tmp_path}/{name}"
            with pytest.raises(eventkit.ForeignTransaction, match=scheme.replace("+", ".")):
                eventkit.connect(url)
            with pytest.raises(eventkit.ForeignTransaction, match=scheme.replace("+", ".")):
                asyncio.run(connect_async(url))
        kit.stream("t").publish(1)
        with eventkit.connect(f"{scheme}:///{tmp_path}/link.db") as again:
            assert again.stream("t").head() == 1
    with eventkit.connect(f"{OTHER[scheme]}:///{tmp_path}/shop.db") as kit:
        assert kit.stream("t").head() == 1


def test_a_refused_kit_leaves_nothing_open(scheme: str, tmp_path: Path) -> None:
    """The other library does not open a file that is open already: closing it would drop its locks."""
    with eventkit.connect(f"{scheme}:///{tmp_path}/shop.db") as kit:
        with kit.transaction() as tx:
            kit.stream("t").publish(1, tx=tx)
            with pytest.raises(eventkit.ForeignTransaction):
                eventkit.connect(f"{OTHER[scheme]}:///{tmp_path}/shop.db")
            with spawn(_is_locked, f"{tmp_path}/shop.db") as other:
                pass
            assert other.result() is True
        assert kit.stream("t").head() == 1


def _is_locked(path: str) -> bool:
    connection = sqlite3.connect(path, timeout=0.1, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    return False


def test_two_libraries_in_one_process_see_no_locks(tmp_path: Path) -> None:
    """This is the reason for the refusals: both are inside a write transaction at once, on the same file."""
    with eventkit.connect(f"sqlite:///{tmp_path}/shop.db"):
        pass
    with spawn(_write_with_both, f"{tmp_path}/shop.db") as process:
        pass
    assert process.result() == "both hold the write lock"


def _write_with_both(path: str) -> str:
    one, two = apsw.Connection(path), sqlite3.connect(path, timeout=0.1, isolation_level=None)
    one.execute("BEGIN IMMEDIATE")
    try:
        two.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return str(error)
    return "both hold the write lock"


@proves("G2")
def test_a_python_with_an_old_sqlite_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The refusal comes before anything is created; the error names a URL that works."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(eventkit.Unavailable, match=r"older than 3\.38: use a URL that begins with sqlite:///"):
        eventkit.connect(f"sqlite+pysqlite:///{tmp_path}/shop.db")
    assert not list(tmp_path.iterdir())
    eventkit.connect(f"sqlite:///{tmp_path}/shop.db").close()
