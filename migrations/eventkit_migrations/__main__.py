"""``python -m eventkit_migrations``: commands for the schema."""

import argparse
import sys
from collections.abc import Sequence

import eventkit_migrations


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.  Return 0 on success, 1 on failure, with the reason on one line of stderr."""
    from sqlalchemy.exc import SQLAlchemyError

    from eventkit.errors import EventkitError

    from . import database

    options = _parser().parse_args(arguments)
    try:
        if options.command == "upgrade":
            eventkit_migrations.upgrade(options.url, options.to)
        elif options.command == "downgrade":
            eventkit_migrations.downgrade(options.url, options.to)
        print(eventkit_migrations.current(options.url) or "none")
    except (EventkitError, ValueError) as error:
        return _failed(str(error))
    except SQLAlchemyError as error:
        # The driver's own message; SQLAlchemy adds the statement and a link on further lines.
        return _failed(f"{database.shown(options.url)}: {getattr(error, 'orig', error)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m eventkit_migrations",
        description="Create, upgrade or drop eventkit's tables. Each command prints the revision it ends at.",
        epilog="URL is what eventkit.connect takes: sqlite:///relative.db, sqlite:////absolute.db, "
        "postgresql://user@host/database?schema=eventkit",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    upgrade = commands.add_parser("upgrade", help="create the tables, or bring them up to date; data is kept")
    downgrade = commands.add_parser(
        "downgrade", help="go back to an older revision; everything newer is dropped WITH ITS DATA"
    )
    current = commands.add_parser("current", help="print the database's revision, or 'none'")
    for command in upgrade, downgrade, current:
        command.add_argument("url", metavar="URL", help="the database, as eventkit.connect takes it")
    upgrade.add_argument(
        "--to", metavar="REV", default="head", help="the revision to stop at (default: head, the newest)"
    )
    downgrade.add_argument(
        "--to", metavar="REV", required=True, help="the revision to go back to; 'base' drops every table"
    )
    return parser


def _failed(reason: str) -> int:
    print(f"eventkit_migrations: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
