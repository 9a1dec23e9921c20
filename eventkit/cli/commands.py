"""The ``eventkit`` command: all subcommands, and their exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ..errors import EventkitError
from . import admin, coordination, data, groups, processes, sql, streams, tasks
from .output import Failed, Refused
from .spellings import rewritten

app = typer.Typer(
    name="eventkit",
    help="Durable streams, a task queue and notifications in your own database.",
    epilog="The database is that of --url, EVENTKIT_URL, eventkit.toml or [tool.eventkit] in pyproject.toml, in this "
    "order. Exit codes: 0 success, 1 failure or negative answer, 2 usage error.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)

for top in (processes, admin, data, sql):
    app.add_typer(top.commands)
for group in (tasks.queues, tasks.tasks, tasks.dead_tasks, streams.streams, groups.groups, streams.channels):
    app.add_typer(group)
for group in (
    coordination.schedules,
    coordination.locks,
    coordination.cluster_limits,
    coordination.pipelines,
    admin.keys,
):
    app.add_typer(group)


def _version(asked: bool) -> None:
    if asked:
        from eventkit import __version__

        print(f"eventkit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Durable streams, a task queue and notifications in your own database."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command of *arguments* or of the process; return its exit code."""
    return max(map(_run, rewritten(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    try:
        code = typer.main.get_command(app).main(args=arguments, prog_name="eventkit", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return _ended(1, "interrupted; committed work is kept")
    except BrokenPipeError:
        # The reader closed the pipe; stdout goes to /dev/null, so that the flush at exit does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("EVENTKIT_DEBUG"):
            raise
        return _reported(error)
    return code if isinstance(code, int) else 0


def _reported(error: Exception) -> int:
    """Print the reason of an error on one line; return the exit code."""
    if isinstance(error, typer.exceptions.TyperException):
        text = error.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":
            print(text)
            return 2
        context = getattr(error, "ctx", None)
        return _ended(2, f"{text} (see {context.command_path if context else 'eventkit'} --help)")
    if isinstance(error, EventkitError | Failed | FileExistsError):
        return _ended(1, str(error))
    if isinstance(error, Refused | ValueError | TypeError):
        return _ended(2, str(error))
    return _ended(1, f"{type(error).__name__}: {error} (EVENTKIT_DEBUG=1 shows the traceback)")


def _ended(code: int, reason: str) -> int:
    print("eventkit: " + " ".join(reason.split()), file=sys.stderr)
    return code
