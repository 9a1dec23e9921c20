"""One session of Spark for all tests of this folder, which `tests/conftest.py` keeps together on one worker."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.streams import stored

import eventkit


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a session on two cores of this machine."""
    from eventkit.spark import session
    from eventkit.spark.session import shared_classes

    folder = tmp_path_factory.mktemp("spark")
    config = {
        "spark.sql.warehouse.dir": str(folder),
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "1",
        # Full compilation of code that runs a few times takes half of Java's time.
        "spark.driver.extraJavaOptions": f"{shared_classes()} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    # Spark's processes inherit this environment; no store of a test reads these variables.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "test")
    spark = session(master="local[2]", config=config)
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed file with empty tables."""
    path = tmp_path_factory.mktemp("pattern") / "pattern.db"
    eventkit.connect(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def sqlite_url(pattern: Path, tmp_path: Path) -> str:
    """Return the URL of a fresh file."""
    shutil.copyfile(pattern, tmp_path / "test.db")
    return f"sqlite:///{tmp_path}/test.db"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an emptied database, a file unless the test is for both kinds."""
    sqlite = getattr(request, "param", "sqlite") == "sqlite"
    return str(request.getfixturevalue("sqlite_url" if sqlite else "emptied_url"))


@pytest.fixture
def kit(url: str) -> Iterator[eventkit.EventKit]:
    """Return a kit on the database, in the process of the driver."""
    with eventkit.connect(url) as kit:
        yield kit


@pytest.fixture
def new_identity(kit: eventkit.EventKit, url: str) -> Callable[[], None]:
    """Return a function that gives the database a new identity, as if it had been deleted and recreated."""

    def renew() -> None:
        with kit.transaction() as tx:
            tx.execute(f"UPDATE {stored('identity', url)} SET id = '{secrets.token_hex(16)}'")

    return renew
