"""docs/cli.md shows the ``--help`` of every command, and the examples of all pages run.

``python tests/test_cli_docs.py`` rewrites the page.
"""

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import EVENTKIT, process
from deployed import programs, worker
from test_docs import PAGES, POSTGRES, blocks, on_our_server

from eventkit.cli import main
from eventkit.cli.commands import app

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
SPARKS = PAGE.parent / "sql.md"
"""The page whose examples start Spark; ``spark/test_pages`` runs them in its session."""

BLOCK = re.compile(r"^```text\n\$ eventkit (.*?)--help\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> Iterator[tuple[str, Any]]:
    """Return every command and group, by the words that call it."""

    def beneath(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield words, command
        for name, child in getattr(command, "commands", {}).items():
            yield from beneath(f"{words}{name} ", child)

    return beneath("", typer.main.get_command(app))


@cache
def shown(words: str) -> str:
    """Return the help of the command in a terminal of a hundred columns."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setenv("COLUMNS", "100")
        assert main([*words.split(), "--help"]) == 0
    return said.getvalue().rstrip() + "\n"


def test_the_page_shows_what_help_says() -> None:
    """Every command is on the page, and no other; a changed command, option or word is changed there as well."""
    assert dict(BLOCK.findall(PAGE.read_text("utf-8"))) == {words: shown(words) for words, _ in commands()}


def test_everything_has_help() -> None:
    """Every command, argument and option has a sentence; in a list of commands, none is cut off."""
    for words, command in commands():
        assert command.help, words
        assert "..." not in shown(words).partition("Commands:")[2], words
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{words}{parameter.name}"


def examples(page: Path) -> list[str]:
    """Return the commands of the page's blocks, which hold nothing else."""
    text = "".join(block for _, block in blocks(page, "sh") if re.search("^eventkit ", block, re.MULTILINE))
    return text.splitlines()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != SPARKS and examples(page)], ids=lambda page: page.name
)
def test_its_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """They run in order, in a folder with the page's programs; those that never end say Ctrl-C and are interrupted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVENTKIT_URL", raising=False)
    programs(page, tmp_path)
    for line in examples(page):
        if POSTGRES.search(line):
            line = on_our_server(line, request.getfixturevalue("postgres_url"))
        given, _, line = line.rpartition(" | ")
        words = shlex.split(line, comments=True)
        assert ("Ctrl-C" in line) == (words[:2] in (["eventkit", "worker"], ["eventkit", "serve"])), line
        match words:
            case ["export", setting]:
                monkeypatch.setenv(*setting.split("=", 1))
            case ["eventkit", "serve", *arguments]:
                arguments += ["--port", "0"]  # The port of the page may be in use on this machine.
                with worker(*EVENTKIT, "serve", *arguments, folder=tmp_path, begun=lambda log: "http://" in log):
                    pass
            case ["eventkit", "worker", *arguments]:
                with worker(*EVENTKIT, "worker", *arguments, folder=tmp_path):
                    pass
            case ["eventkit", *arguments] if "shop:app" in arguments:
                ran = process(*arguments, env=dict(os.environ))
                assert ran.returncode == 0, ran
            case ["eventkit", *arguments]:
                typed = "".join(f"{word}\n" for word in shlex.split(given)[1:])
                monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
                assert main(arguments) == 0, line
            case _:
                pytest.fail(f"{line} is no example")


def rewritten(page: str) -> str:
    """Return the page with the current ``--help`` texts."""
    return BLOCK.sub(lambda found: f"```text\n$ eventkit {found[1]}--help\n{shown(found[1])}```", page)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text("utf-8")), "utf-8")
