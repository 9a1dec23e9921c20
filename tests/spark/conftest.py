"""One session of Spark for all tests of this folder, which `tests/conftest.py` keeps together on one worker."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from emptied_schema import EmptiedSchema

import eventkit


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on two cores of this machine."""
    from eventkit.spark import session

    # The processes of Spark have the environment in which it was started; no store of a test looks at these.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "test")
    folder = tmp_path_factory.mktemp("spark")
    config = {
        "spark.sql.warehouse.dir": str(folder),
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
    }
    spark = session(master="local[2]", config=config)
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables and nothing in them, which nobody has open."""
    path = tmp_path_factory.mktemp("pattern") / "pattern.db"
    eventkit.connect(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def emptied(postgres: str) -> Iterator[EmptiedSchema]:
    """The schema that every test on Postgres has in its turn."""
    with closing(EmptiedSchema(postgres)) as schema:
        yield schema


@pytest.fixture
def sqlite_url(pattern: Path, tmp_path: Path) -> str:
    """A fresh file."""
    shutil.copyfile(pattern, tmp_path / "test.db")
    return f"sqlite:///{tmp_path}/test.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """A database as if it were fresh, of each kind."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    schema = request.getfixturevalue("emptied")
    schema.empty()
    return str(schema.url)


@pytest.fixture
def kit(url: str) -> Iterator[eventkit.EventKit]:
    """A kit on the database, in the process of the driver."""
    with eventkit.connect(url) as kit:
        yield kit


@pytest.fixture
def new_identity(url: str) -> Callable[[], None]:
    """Makes the database another one, as if it had been deleted and made anew with as many events."""

    def renew() -> None:
        with eventkit.connect(url) as kit, kit.transaction() as tx:
            schema = f'"{url.partition("schema=")[2]}".' if "schema=" in url else ""
            tx.execute(f"UPDATE {schema}eventkit_identity SET id = '{secrets.token_hex(16)}'")

    return renew
