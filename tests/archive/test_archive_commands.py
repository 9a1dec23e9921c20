"""``eventkit archive``, ``replay`` and ``pipeline``."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from archive.archives import archived, listed, publish, published
from command_line import EVENTKIT, Commands, environment

from eventkit.conformance.clauses import proves


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str], url: str) -> Commands:
    """Return commands on the database."""
    return Commands(capsys, url)


@proves("D20")
def test_archives_are_written_checked_and_replayed(kit: Any, commands: Commands, location: Path) -> None:
    """Without a name, the command takes all topics with an archive; each has one format."""
    offsets = publish(kit, 5)
    [came] = commands.json("archive", "orders", "--to", location, "--format", "iceberg")
    assert (came["stream"], came["events"], came["covered"]) == ("orders", 5, offsets[-1])
    publish(kit, 2)
    expected = listed(location, "iceberg") + published(kit)[5:]
    [came] = commands.json("archive", "--prune")
    assert listed(location, "iceberg") == expected
    assert "has format iceberg, not delta" in commands.refusal(1, "archive", "orders", "--format", "delta")
    assert (came["events"], came["pruned"]) == (2, 7)
    assert commands.json("archive", "--check")[0]["events"] == 7
    assert commands.json("replay", "orders", "--to-stream", "again", "--after", offsets[2])["number"] == 4
    assert len(published(kit, "again")) == 4
    found = [(one["name"], one["state"]) for one in commands.json("pipeline", "list")]
    assert found == [("archive:orders", "done"), ("replay:orders", "done")]
    commands.run("pipeline", "remove", "replay:orders", "--yes")
    assert len(commands.json("pipeline", "list")) == 1


def test_bad_input_is_an_error_of_one_line(kit: Any, commands: Commands, location: Path) -> None:
    """The line names the remedy."""
    publish(kit, 1)
    assert "pass a STREAM and --to FOLDER" in commands.refusal(2, "archive")
    assert "did you mean 'orders'" in commands.refusal(2, "archive", "ordres", "--to", location)
    assert "pass the folder" in commands.refusal(2, "archive", "orders")
    assert "need --prune" in commands.refusal(2, "archive", "orders", "--older-than", "1d")
    assert "--to-stream STREAM or --to-queue" in commands.refusal(2, "replay", "orders")
    assert "has no archive" in commands.refusal(2, "replay", "orders", "--to-queue", "q")
    assert "has no archive" in commands.refusal(2, "archive", "orders", "--check")
    assert "no pipeline 'p'" in commands.refusal(1, "pipeline", "remove", "p", "--yes")


def test_following_ends_by_an_interrupt(kit: Any, url: str, location: Path) -> None:
    """It ends normally, with everything archived."""
    publish(kit, 3)
    command = [*EVENTKIT, "archive", "orders", "--to", str(location), "--follow", "--every", "1ms", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "orders: 3 events archived, 0 dropped\n"
        publish(kit, 2)
        assert process.stdout.readline() == "orders: 2 events archived, 0 dropped\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 1)
    assert archived(kit, location) == published(kit)
