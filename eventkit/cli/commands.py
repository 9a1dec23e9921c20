"""The ``eventkit`` command: all subcommands, and their exit codes."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from . import admin, coordination, data, queues, schedules, serve, sql, status, streams, tasks, worker
from .console import Failed, Refused

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

_COMMANDS: tuple[Callable[..., Any], ...] = (
    worker.worker,
    worker.scheduler,
    serve.serve,
    serve.canary,
    status.overview,
    status.stats,
    status.health,
    status.check,
    admin.doctor,
    admin.migrate,
    admin.current,
    data.export,
    data.import_,
    data.backup,
    data.copy,
    data.archive,
    data.adopt,
    data.replay,
    sql.query,
    sql.select,
    sql.rollup,
    sql.report,
    admin.bench,
    admin.demo,
)

for command in _COMMANDS:
    app.command(command.__name__.rstrip("_"))(command)
for name, group in {
    "queue": queues.queue_app,
    "message": tasks.message_app,
    "dlq": tasks.dlq_app,
    "stream": streams.stream_app,
    "channel": coordination.channel_app,
    "schedule": schedules.schedule_app,
    "lock": coordination.lock_app,
    "pipeline": coordination.pipeline_app,
    "key": admin.key_app,
}.items():
    app.add_typer(group, name=name)


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
    command = typer.main.get_command(app)
    try:
        code = command.main(args=arguments, prog_name="eventkit", standalone_mode=False)
    except KeyboardInterrupt:
        return _ended(1, "interrupted; committed work is kept")
    except BrokenPipeError:
        # The reader closed the pipe; stdout goes to /dev/null, so that the flush at exit does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("EVENTKIT_DEBUG"):
            raise
        return _why(error)
    return code if isinstance(code, int) else 0


def _why(error: Exception) -> int:
    """Print the reason of an error on one line; return the exit code."""
    from eventkit.errors import EventkitError

    if isinstance(error, typer.Abort):
        return _ended(1, "interrupted; committed work is kept")
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
    return _ended(1, f"{type(error).__name__}: {error} (EVENTKIT_DEBUG=1 shows the traceback)")


def _ended(code: int, reason: str) -> int:
    print("eventkit: " + " ".join(reason.split()), file=sys.stderr)
    return code
