"""SQLite URLs: the files they mean, and the errors of invalid ones (G2, G3)."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import eventkit_sqlite
import pytest
import sqlalchemy as sa

import eventkit
from eventkit.conformance import proves
from eventkit.conformance.processes import spawn
from eventkit.errors import UnknownBackend

SCHEMES = ["sqlite", "sqlite+apsw", "sqlite+pysqlite"]


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def publishes(url: str) -> bool:
    with eventkit.connect(url) as kit:
        return kit.stream("t").publish(1) == 1


def engine_url(url: str) -> str:
    """Return the same for SQLAlchemy, where ``sqlite:`` alone means the standard library's driver."""
    return url.replace("sqlite:", "sqlite+apsw:") if url.startswith("sqlite:") else url


# Files of URLs


def test_three_slashes_are_relative_and_four_absolute(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    assert publishes(f"{scheme}:///relative.db")
    assert publishes(f"{scheme}:///sub/relative.db")
    assert publishes(f"{scheme}:///sub/../upwards.db")
    assert publishes(f"{scheme}:///{tmp_path}/absolute.db")
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.db")} == {
        "relative.db",
        "sub/relative.db",
        "upwards.db",
        "absolute.db",
    }


def test_a_kit_stays_with_its_file_when_the_process_goes_elsewhere(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with eventkit.connect(f"{scheme}:///here.db") as kit:
        (tmp_path / "there").mkdir()
        monkeypatch.chdir(tmp_path / "there")
        with kit.transaction() as tx:
            kit.stream("t").publish(1, tx=tx)
        assert len(kit.stream("t").read()) == 1
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "with space.db",
        "a#b.db",
        "#.db",
        "a?b.db",
        "100%.db",
        "a%20b.db",
        "färm 🦊.db",
        "a;b&c=d.db",
        "a\tb.db",
        "[brackets].db",
        "back\\slash.db",
        "no suffix",
        "plus+sign.db",
        "quote'\".db",
        "@host:5.db",
    ],
)
def test_kit_and_engine_mean_the_same_file(scheme: str, tmp_path: Path, name: str) -> None:
    """eventkit, SQLAlchemy and the migrations open the same file for a URL, with any characters in its name."""
    urls = [f"{scheme}:///{quote(f'{tmp_path}/{name}')}"]
    if not set(name) & set("?%"):
        urls.append(f"{scheme}:///{tmp_path}/{name}")
    for number, url in enumerate(urls, 1):
        with eventkit.connect(url) as kit:
            assert kit.stream("t").publish(1) == number
            engine = sa.create_engine(engine_url(url))
            with engine.begin() as connection:
                kit.queue("q").enqueue(1, tx=connection)
            engine.dispose()
            assert kit.queue("q").size() == number
    assert {path.name for path in tmp_path.iterdir()} <= {name + suffix for suffix in ("", "-wal", "-shm", "-lock")}


def test_a_symbolic_link_means_its_target(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "target" / "real.db")
    assert publishes(f"{scheme}:///{tmp_path}/link.db")
    with (
        eventkit.connect(f"{scheme}:///{tmp_path}/link.db") as kit,
        eventkit.connect(f"{scheme}:///{tmp_path}/target/real.db") as real,
        real.transaction() as tx,
    ):
        kit.stream("t").publish(2, tx=tx)
    assert {path.name for path in tmp_path.iterdir()} == {"link.db", "target"}


def test_an_empty_file_and_another_applications_database_get_the_schema(scheme: str, tmp_path: Path) -> None:
    """An application's database need not be in WAL mode, nor empty."""
    (tmp_path / "empty.db").touch()
    assert publishes(f"{scheme}:///{tmp_path}/empty.db")
    url = f"{scheme}:///{tmp_path}/shop.db"
    engine = sa.create_engine(engine_url(url))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    assert publishes(url)
    with engine.begin() as connection:
        assert sa.inspect(connection).has_table("orders")
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    engine.dispose()


# Places that are no file


@pytest.mark.parametrize("rest", ["://", ":///", ":///:memory:", ":///file::memory:?cache=shared", ":shop.db", ""])
def test_a_database_in_memory_is_refused(scheme: str, rest: str) -> None:
    """It would be neither durable nor shared; the message shows a valid URL."""
    with pytest.raises((ValueError, UnknownBackend), match=r"sqlite:///events\.db"):
        eventkit.connect(scheme + rest)


def test_a_host_is_refused(scheme: str) -> None:
    """Two slashes are a common mistake; the message shows the three and the four."""
    with pytest.raises(ValueError, match=r"sqlite:///relative\.db .*sqlite:////absolute\.db"):
        eventkit.connect(f"{scheme}://shop.db")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("cache=shared", "unknown option 'cache'.*durability, busy_timeout"),
        ("mode=ro", "mode must be an octal number"),
        ("mode=0066", "mode must be an octal number that lets the owner read and write"),
        ("durability=maybe", "durability is one of full, normal, off"),
        ("watch=closely", "watch is one of inotify, poll"),
        ("busy_timeout=-1", "busy_timeout is a number"),
        ("busy_timeout=nan", "busy_timeout is a number"),
        ("fallback_poll=soon", "fallback_poll is a number"),
        ("max_payload=", "max_payload is a number"),
    ],
)
def test_an_option_that_means_nothing_is_refused(scheme: str, tmp_path: Path, query: str, message: str) -> None:
    """No file is created."""
    with pytest.raises(ValueError, match=message):
        eventkit.connect(f"{scheme}:///{tmp_path}/shop.db?{query}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1), ("off", 0), (None, 1)])
def test_durability_is_sqlites_synchronous(tmp_path: Path, durability: str | None, level: int) -> None:
    url = f"sqlite:///{tmp_path}/shop.db" + (f"?durability={durability}" if durability else "")
    with eventkit.connect(url) as kit, kit.transaction() as tx:
        assert tx.execute("PRAGMA synchronous").fetchall() == [(level,)]


@proves("G2")
@pytest.mark.parametrize(
    ("query", "umask", "mode"), [("", 0o022, 0o600), ("?mode=0660", 0o007, 0o660), ("?mode=660", 0o027, 0o640)]
)
def test_a_new_file_is_its_owners(scheme: str, tmp_path: Path, query: str, umask: int, mode: int) -> None:
    """The database, its log and a backup have the mode of the URL, less the umask; an existing file keeps its mode."""
    before = os.umask(umask)
    try:
        with eventkit.connect(f"{scheme}:///{tmp_path}/shop.db{query}") as kit:
            kit.stream("t").publish(1)
            found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
            assert found == dict.fromkeys(("shop.db", "shop.db-wal", "shop.db-shm", "shop.db-lock"), mode)
        eventkit_sqlite.backup(f"{scheme}:///{tmp_path}/shop.db{query}", f"{tmp_path}/backup.db", print)
        assert (tmp_path / "backup.db").stat().st_mode & 0o777 == mode
        (tmp_path / "shop.db").chmod(0o604)
        eventkit.connect(f"{scheme}:///{tmp_path}/shop.db{query}").close()
        assert (tmp_path / "shop.db").stat().st_mode & 0o777 == 0o604
    finally:
        os.umask(before)


def test_a_folder_is_refused(scheme: str, tmp_path: Path) -> None:
    with pytest.raises(eventkit.Unavailable, match="is a folder: name a file in it"):
        eventkit.connect(f"{scheme}:///{tmp_path}")


def test_a_missing_folder_is_named(scheme: str, tmp_path: Path) -> None:
    with pytest.raises(eventkit.Unavailable, match=f"there is no folder {tmp_path}/missing"):
        eventkit.connect(f"{scheme}:///{tmp_path}/missing/shop.db")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_database_is_left_alone(scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ann,\n" * 200)
    for create in (True, False):
        with pytest.raises(eventkit.Unavailable, match=r"letter\.txt is not an SQLite database: name another file"):
            eventkit.connect(f"{scheme}:///{path}", create=create)
    assert path.read_text() == "Dear Ann,\n" * 200


# Missing permissions


@pytest.fixture
def public() -> Iterator[Path]:
    """Return a folder that any user may enter; tests often run as root, which permissions do not stop."""
    folder = Path(tempfile.mkdtemp(prefix="eventkit-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def connect_as_nobody(url: str, create: bool) -> str:
    """Return the error that a user without rights gets."""
    return str(spawn(_connect_as_nobody, url, create).result())


def _connect_as_nobody(url: str, create: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        # Late imports must be complete before the rights are dropped.
        assert publishes(f"{url.partition(':')[0]}:///{folder}/test.db")
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        eventkit.connect(url, create=create)
    except eventkit.Unavailable as error:
        return str(error)
    raise AssertionError("connected")


@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_file_that_may_not_be_written_is_refused(scheme: str, public: Path, mode: int) -> None:
    assert publishes(f"{scheme}:///{public}/shop.db")
    (public / "shop.db").chmod(mode)
    error = connect_as_nobody(f"{scheme}:///{public}/shop.db", create=False)
    assert error == f"{public}/shop.db cannot be written: check the permissions of the file and its folder"


def test_a_folder_that_may_not_be_written_is_refused(scheme: str, public: Path) -> None:
    """SQLite needs two more files beside the database."""
    assert publishes(f"{scheme}:///{public}/shop.db")
    (public / "shop.db").chmod(0o666)
    public.chmod(0o555)
    error = connect_as_nobody(f"{scheme}:///{public}/shop.db", create=True)
    assert error == f"{public}/shop.db cannot be written: check the permissions of the file and its folder"


def test_a_file_that_may_not_be_created_is_refused(scheme: str, public: Path) -> None:
    public.chmod(0o555)
    error = connect_as_nobody(f"{scheme}:///{public}/shop.db", create=True)
    assert error == f"{public}/shop.db cannot be created: check the permissions of the folder"


# The schema


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0000", r"revision 0000, older than this code's .*run python -m eventkit_migrations upgrade sqlite"),
        ("9999", r"revision 9999, newer than this code's .*install a newer eventkit"),
    ],
)
def test_another_revision_is_refused(scheme: str, tmp_path: Path, version: str, message: str) -> None:
    """An older schema is never upgraded silently, a newer one never written."""
    url = f"{scheme}:///{tmp_path}/shop.db"
    with eventkit.connect(url) as kit, kit.transaction() as tx:
        tx.execute("UPDATE eventkit_version SET version_num = ?", (version,))
    connects: list[Callable[[], object]] = [lambda: eventkit.connect(url), lambda: eventkit.connect(url, create=False)]
    for connect in connects:
        with pytest.raises(eventkit.NotMigrated, match=message):
            connect()


def test_a_place_without_a_schema_is_left_alone_if_asked_for(scheme: str, tmp_path: Path) -> None:
    url = f"{scheme}:///{tmp_path}/shop.db"
    with pytest.raises(eventkit.NotMigrated, match=r"there is no .*upgrade sqlite"):
        eventkit.connect(url, create=False)
    assert list(tmp_path.iterdir()) == []
    engine = sa.create_engine(engine_url(url))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with pytest.raises(eventkit.NotMigrated, match=r"has no eventkit tables: run .*upgrade sqlite"):
        eventkit.connect(url, create=False)
    with engine.begin() as connection:
        assert sa.inspect(connection).get_table_names() == ["orders"]
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
    engine.dispose()
