"""Settings of commands: their options, the settings file, and the database they open."""

import getpass
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import msgspec
import typer

import eventkit

from ..codec import encode_json
from ..protocols import Connection, EventKit
from .output import Failed, Refused

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


def duration(text: str | float) -> float:
    """Parse seconds, such as ``90``, ``1.5``, ``500ms``, ``1h30m``, ``7d``; Typer also passes defaults, in seconds."""
    if not isinstance(text, str):
        return text
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_PARTS.pattern})+", text):
        raise typer.BadParameter(f"{text!r} is not a duration: pass seconds, or for example 500ms, 30s, 1h30m, 7d")
    return sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(text))


def moment(text: str) -> datetime:
    """Parse a time in ISO 8601, by default in the local time zone."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time: pass, as in 2026-01-31T08:00 or …T08:00+01:00") from None


def json_value(text: str, what: str = "payload") -> Any:
    """Parse JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        hint = "" if re.search(r"[{\[\"]", text) else f"; a string needs quotes: '\"{text}\"'"
        raise Refused(f"the {what} is not JSON ({error}){hint}") from None


def headers(given: list[str] | None) -> dict[str, str] | None:
    """Parse several ``name=value``."""
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Refused(f"{text!r} is not a header: pass --header name=value")
        found[name] = value
    return found or None


def with_headers(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with parsed ``headers`` in place of ``header``."""
    options = {**given, "headers": headers(given.get("header"))}
    options.pop("header", None)
    return options


_KNOWN = {"url": (str, "text"), "worker": (dict, "table"), "server": (dict, "table")}
"""The settings of the file and their types."""


def url(given: str | None) -> str:
    """Return the URL of the database; *given* is that of the option or the environment."""
    found = given or from_file().get("url")
    if not found:
        raise Refused(
            "no database: pass --url sqlite:///shop.db, set EVENTKIT_URL, "
            'or put url = "sqlite:///shop.db" under [tool.eventkit] in pyproject.toml'
        )
    return str(found)


def from_file() -> dict[str, Any]:
    """Return the settings of the file, empty if there is none."""
    own, shared = Path("eventkit.toml"), Path("pyproject.toml")
    if not own.is_file() and not shared.is_file():
        return {}
    file = own if own.is_file() else shared
    try:
        found: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise Refused(f"cannot read {file}: {error}") from error
    if file is shared:
        found = found.get("tool", {}).get("eventkit", {})
    for name, value in found.items():
        if name not in _KNOWN:
            raise Refused(f"unknown setting {name!r} in {file}: use {', '.join(_KNOWN)}")
        kind, words = _KNOWN[name]
        if not isinstance(value, kind):
            raise Refused(f"invalid {name} = {value!r} in {file}: use a {words}")
    return found


def argument(metavar: str, help: str) -> Any:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def option(metavar: str | None, help: str, *names: str, **more: Any) -> Any:
    """Declare an option; Typer derives its name from the parameter if there are no *names*."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def flag(help: str, *names: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(*names, help=help)


def period(help: str, *names: str, **more: Any) -> Any:
    """Declare an option that is a duration."""
    return option("TIME", help, *names, parser=duration, **more)


Url = Annotated[str | None, option("URL", "The database, for example sqlite:///shop.db.", envvar="EVENTKIT_URL")]
Json = Annotated[bool, flag("Print JSON.", "--json")]
Yes = Annotated[bool, flag("Do not ask for confirmation.", "--yes", "-y")]
Limit = Annotated[int, option("N", "Maximum number of rows.", "--limit", "-n", min=1)]
Stream = Annotated[str, argument("STREAM", "The name of the stream.")]
Headers = Annotated[list[str] | None, option("NAME=VALUE", "A header; repeatable.", "--header")]
OlderThan = Annotated[float | None, period("Only what is older, for example 12h or 7d.")]


@contextmanager
def opened(given: str | None) -> Iterator[EventKit]:
    """Open the kit on the database of the command; only ``eventkit migrate`` creates a database."""
    with eventkit.connect(url(given), create=False) as kit:
        yield kit


def connected(given: str | None) -> AbstractContextManager[Connection]:
    """Open a connection that executes operations, for commands beyond the handles of a kit."""
    from eventkit.kit import backend_of

    address = url(given)
    return closing(backend_of(address).connect(address, create=False))


_DATABASES: dict[str, Callable[[str | None], AbstractContextManager[Any]]] = {
    "kit": opened,
    "connection": connected,
    "address": lambda given: nullcontext(url(given)),
}
_Function = TypeVar("_Function", bound=Callable[..., Any])


def group(name: str | None = None, help: str | None = None) -> typer.Typer:
    """Return a group of commands; without a name, they are commands of ``eventkit`` itself."""
    if name is None:
        return typer.Typer()
    made = typer.Typer(name=name, help=help, no_args_is_help=True, rich_markup_mode=None)
    made.callback()(lambda: None)  # Without it, Typer turns a group with one command into this command.
    return made


def command(group: typer.Typer, name: str | None = None, help: str | None = None) -> Callable[[_Function], _Function]:
    """Add a function to a group as a command, by default under its own name and with its docstring as help.

    Its parameter ``kit`` is the opened database of ``--url``, ``connection`` executes operations on it, and ``address``
    is its URL.  ``**given: Unpack[Options]`` has the options of a `typing.TypedDict` that are given or have a default,
    which follows the option: ``Annotated[int, option(…), 0]``.  The result that it returns is printed, as JSON with
    ``--json``.
    """

    def add(function: _Function) -> _Function:
        group.command(name or function.__name__.rstrip("_"), help=help)(_prepared(function))
        return function

    return add


def _prepared(function: Callable[..., Any]) -> Callable[..., None]:
    """Return the function with the signature that Typer reads, in which ``--url`` and ``--json`` are last."""
    signature = inspect.signature(function)
    database = next((name for name in _DATABASES if name in signature.parameters), None)
    declared: dict[str, tuple[Any, Any]] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            for given, annotation in get_args(parameter.annotation)[0].__annotations__.items():
                _, *default = annotation.__metadata__
                declared[given] = annotation, default[0] if default else None
        elif name != database:
            declared[name] = parameter.annotation, parameter.default
    if database is not None or "url" in declared:
        declared["url"] = declared.pop("url", (Url, None))
    if signature.return_annotation is not None or "json" in declared:
        declared["json"] = declared.pop("json", (Json, False))

    def run(url: str | None = None, json: bool = False, **arguments: Any) -> None:
        own = signature.parameters
        given = {name: value for name, value in arguments.items() if name in own or value is not None}
        given |= {name: value for name, value in (("url", url), ("json", json)) if name in own}
        with ExitStack() as stack:
            if database is not None:
                given[database] = stack.enter_context(_DATABASES[database](url))
            result = function(**given)
            if result is not None:
                result.show(json)

    run.__doc__ = function.__doc__
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in declared.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def backend_function(address: str, what: str) -> Any:
    """Return an administrative function of the database's backend."""
    from eventkit.kit import backend_of

    backend = backend_of(address)
    if not hasattr(backend, what):
        raise Failed(f"the {address.partition(':')[0]} backend does not support {what}: use the database's own tools")
    return getattr(backend, what)


def caller() -> str:
    """Return the name of the user for the audit log."""
    return f"command line: {getpass.getuser()}"


def audited(kit: EventKit, action: str, **about: Any) -> EventKit:
    """Return a kit that records its writes as *action* in the audit log."""
    from eventkit.kit import Kit

    entry = encode_json({"action": action, "by": caller(), **about})
    connection: Any = _Auditing(kit._connection, entry)  # type: ignore[attr-defined]
    return Kit(connection)


class _Auditing:
    """A connection that adds *entry* to the audit log with each write."""

    def __init__(self, connection: Any, entry: str) -> None:
        self._connection = connection
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, operation: Any, tx: Any = None) -> Any:
        from eventkit.operations.admin import Audited

        return self._connection.execute(Audited(operation, self._entry) if operation.writes else operation, tx)
