"""Folders of archives, for every name that a topic can have."""

from pathlib import Path

import pytest

from eventkit.archive.files import epoch_of, new_path, topic_folder

NAMES = ["orders", "a/b", "..", "größe", "a:b c", "🦊" * 255, "x" * 255, "%2F", "=", "topic=orders", "a\\b", "\u2028"]


@pytest.mark.parametrize("topic", NAMES)
def test_every_topic_has_a_folder(topic: str, tmp_path: Path) -> None:
    """Any file system accepts its name, and it is inside the archive's folder."""
    path = new_path(topic, "2026-01-31", 1, 99, 7)
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.touch()
    assert [str(found.relative_to(tmp_path)) for found in tmp_path.rglob("*.parquet")] == [path]
    assert len(path.split("/")) == 3
    assert epoch_of(path) == 7


def test_no_two_have_the_same() -> None:
    """This includes similar names."""
    names = [*NAMES, "🦊" * 254 + "🐈", "x" * 254 + "y"]
    assert len({topic_folder(topic) for topic in names}) == len(names)
    assert new_path("orders", "2026-01-31", 1, 99, 7) != new_path("orders", "2026-01-31", 1, 99, 7)
