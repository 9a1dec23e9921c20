"""The SQL functions on Postgres contain the statements of the handles, word by word."""

import re
from importlib.resources import files

from test_statements import statements

CALLS = files("eventkit_migrations").joinpath("versions/0001_postgres_calls.sql").read_text("utf-8")

SAID = re.compile(r"^ +-- (\w+):\n(.*?)(?:\n +INTO [^;]*?)?(?:\n +LOOP$|\s*;\n)", re.MULTILINE | re.DOTALL)
"""A statement beneath the name of its operation, up to the place where a function stores its rows."""

FOR_OWN_TRANSACTIONS = ", set_config('synchronous_commit', 'off', true)"
"""The part of a statement that configures the whole transaction, which in a function is the caller's."""


COUNTED = " RETURNING 1"
"""The returned row by which a plan counts, and which a function may omit."""


def words(text: str) -> str:
    """Return *text* without comments and line breaks."""
    return " ".join(re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE).split())


def test_statements_are_those_of_the_handles() -> None:
    """They are equal with a variable of the function for each parameter."""
    own = statements("eventkit_postgres")
    found = SAID.findall(CALLS)
    assert [name for name, _ in found] == re.findall(r"^ +-- (\w+):$", CALLS, re.MULTILINE)
    assert len(found) > 20
    for name, text in found:
        expected = re.sub(r"(?<!:):([a-z]\w*)(?:\.(\d))?", _variable, own[name]).replace(FOR_OWN_TRANSACTIONS, "")
        assert words(text).removesuffix(COUNTED) == words(expected).removesuffix(COUNTED), name


def _variable(match: re.Match[str]) -> str:
    return f"call.{match[1]}" + (f"_{match[2]}" if match[2] else "")
