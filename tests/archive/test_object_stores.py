"""Archives in an object store: the same results as in a folder, and credentials in no name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest
from archive.archives import manifest, published
from object_store import KEY, SECRET, object_store
from pyiceberg.table import StaticTable

import eventkit
from eventkit import EventkitError, archive
from eventkit.archive.files import Location, Store
from eventkit.conformance import proves
from eventkit.operations.admin import ListPipelines

QUOTED = SECRET.replace("/", "%2F").replace("+", "%2B")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Return a server with a bucket."""
    with object_store("bucket") as endpoint:
        yield endpoint


@pytest.fixture
def profile(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the server's address and the credentials to AWS files."""
    (tmp_path / "config").write_text(f"[profile lake]\nendpoint_url = {endpoint}\nregion = us-east-1\n")
    (tmp_path / "credentials").write_text(f"[lake]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lake")


def listed(endpoint: str, location: str, format: str) -> list[tuple[int, str]]:
    """Return the events as a reader gets them from the store and its format's library alone."""
    folder = f"{location}/topic=orders"
    if format == "delta":
        known = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "aws_region": "us-east-1"}
        options = known | {"aws_endpoint": endpoint, "aws_allow_http": "true"}
        table = deltalake.DeltaTable(folder, storage_options=options).to_pyarrow_table()
    else:
        known = {"s3.access-key-id": KEY, "s3.secret-access-key": SECRET, "s3.region": "us-east-1"}
        table = StaticTable.from_metadata(folder, known | {"s3.endpoint": endpoint}).scan().to_arrow()
    return sorted((row["offset"], row["payload"]) for row in table.to_pylist())


@proves("D11", "D13", "D14", "D15", "D20")
@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_an_archive_does_there_what_it_does_in_a_folder(
    kit: eventkit.EventKit, url: str, profile: None, endpoint: str, tmp_path: Path, format: Any
) -> None:
    """Archive, prune, check and replay work, and missing files are named; a profile gives endpoint and credentials."""
    location = f"s3://bucket/{tmp_path.name}"
    orders = kit.stream("orders")
    orders.publish_many([{"n": number} for number in range(50)])
    expected = published(kit)
    assert archive.archive(url, "orders", to=location, format=format).location == location
    orders.publish_many([{"n": number} for number in range(50, 100)])
    expected += published(kit)[50:]
    assert archive.archive(url, "orders", prune=True)[2:6] == (50, 1, 0, 100)
    assert orders.read() == []
    assert archive.check(url, "orders").events == 100
    assert archive.replay(url, "orders", to_stream="again").events == 100
    assert [row[1:4] for row in published(kit, "again")] == [row[1:4] for row in expected]
    if format != "parquet":
        assert listed(endpoint, location, format) == [(row[0], row[2]) for row in expected]
    store, gone = Store(location), manifest(kit).files[0].path
    store.remove(gone)
    with pytest.raises(EventkitError, match="is missing"):
        archive.check(url, "orders")


@proves("D11", "D20")
def test_a_table_is_where_its_files_are(
    kit: eventkit.EventKit, url: str, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URI with parameters works; its credentials are used, and are in no name, result or error."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    place = f"bucket/{tmp_path.name}"
    plain = f"s3://{place}?endpoint_override={endpoint.removeprefix('http://')}&scheme=http&region=us-east-1"
    given = plain.replace("s3://", f"s3://{KEY}:{QUOTED}@")
    kit.stream("orders").publish_many(list(range(10)))
    came = archive.archive(url, "orders", to=given, format="delta")
    assert (came.events, came.location, manifest(kit).location) == (10, plain, plain)
    files = Store(given).list("")
    assert {path.split("/")[0] for path in files} == {"topic=orders"}
    assert "topic=orders/_delta_log/00000000000000000001.json" in files
    assert len(listed(endpoint, f"s3://{place}", "delta")) == 10
    [note] = kit._connection.execute(ListPipelines())
    with pytest.raises(EventkitError, match="is in s3://bucket") as elsewhere:
        archive.archive(url, "orders", to=given.replace("bucket/", "bucket/other-"))
    with pytest.raises(EventkitError) as missing:
        archive.archive(url, "orders", to=given.replace("bucket/", "none/"))
    with pytest.raises(ValueError, match="no folder that Arrow knows of") as wrong:
        archive.archive(url, "orders", to=given + "&secret_option=1&unknown=2")
    with pytest.raises(ValueError, match="the name of a bucket holds no colon") as unquoted:
        archive.archive(url, "orders", to=f"s3://{KEY}:{SECRET}@{place}")
    for text in (repr(note), repr(came), *map(str, (elsewhere.value, missing.value, wrong.value, unquoted.value))):
        assert not {KEY, SECRET, QUOTED} & {word for word in (KEY, SECRET, QUOTED) if word in text}, text


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("s3://bucket/lake/", "s3://bucket/lake"),
        ("s3://key:secret@bucket/lake?region=eu&session_token=abc", "s3://bucket/lake?region=eu"),
        ("gs://anonymous@bucket/lake", "gs://anonymous@bucket/lake"),
        ("abfs://container:secret@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net/a"),
        ("s3a://key:secret@bucket/lake", "s3a://bucket/lake"),
    ],
)
def test_a_location_is_named_without_credentials(given: str, name: str) -> None:
    """The rest of a URI is unchanged."""
    assert Location(given).name == name
    assert Location(given).uri("a/b") == f"{name.partition('?')[0]}/a/b"


def test_a_folder_is_named_from_wherever_it_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is its absolute path."""
    monkeypatch.chdir(tmp_path)
    assert Location("lake").name == str(tmp_path / "lake") == Location(tmp_path / "lake").name
