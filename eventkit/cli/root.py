"""All commands together, and how any of them ends."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from . import (
    archiving,
    channels,
    dead,
    keys,
    locks,
    messages,
    moving,
    pipelines,
    querying,
    queues,
    reporting,
    schedules,
    schema,
    serving,
    singing,
    streams,
    trying,
    watching,
    working,
)
from .refusals import Failed, Refused

app = typer.Typer(
    name="eventkit",
    help="Durable streams, a task queue and notifications in the database you have.",
    epilog="The database is that of --url, else of EVENTKIT_URL, else of eventkit.toml or [tool.eventkit] in "
    "pyproject.toml. Exit codes: 0 done, 1 failed or no, 2 not understood.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)

_COMMANDS: tuple[Callable[..., Any], ...] = (
    working.worker,
    working.scheduler,
    serving.serve,
    singing.canary,
    watching.overview,
    watching.stats,
    watching.health,
    watching.check,
    trying.doctor,
    schema.migrate,
    schema.current,
    moving.export,
    moving.import_,
    moving.backup,
    moving.copy,
    archiving.archive,
    archiving.adopt,
    archiving.replay,
    querying.query,
    querying.select,
    reporting.rollup,
    reporting.report,
    trying.bench,
    trying.demo,
)

for command in _COMMANDS:
    app.command(command.__name__.rstrip("_"))(command)
for name, group in {
    "queue": queues,
    "message": messages,
    "dlq": dead,
    "stream": streams,
    "channel": channels,
    "schedule": schedules,
    "lock": locks,
    "pipeline": pipelines,
    "key": keys,
}.items():
    app.add_typer(group.app, name=name)


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
    """Durable streams, a task queue and notifications in the database you have."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command that *arguments*, or those of the process, ask for; its exit code."""
    command = typer.main.get_command(app)
    try:
        code = command.main(args=arguments, prog_name="eventkit", standalone_mode=False)
    except KeyboardInterrupt:
        return _ended(1, "interrupted; what was committed stays")
    except BrokenPipeError:
        # Whoever read has had enough; and nothing is left to be said when Python flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("EVENTKIT_DEBUG"):
            raise
        return _why(error)
    return code if isinstance(code, int) else 0


def _why(error: Exception) -> int:
    """Say in a line why a command ends, and what helps; its exit code."""
    from eventkit.errors import EventkitError

    if isinstance(error, typer.Abort):
        return _ended(1, "interrupted; what was committed stays")
    if isinstance(error, typer.exceptions.TyperException):
        text = error.format_message()
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(text)
            return 2
        return _ended(2, f"{text} (see {context.command_path if context else 'eventkit'} --help)")
    if isinstance(error, Refused):
        return _ended(2, str(error))
    if isinstance(error, EventkitError | Failed):
        return _ended(1, str(error))
    if isinstance(error, ValueError | TypeError):
        return _ended(2, str(error))
    return _ended(1, f"{type(error).__name__}: {error} (EVENTKIT_DEBUG=1 shows where)")


def _ended(code: int, reason: str) -> int:
    print("eventkit: " + " ".join(reason.split()), file=sys.stderr)
    return code
