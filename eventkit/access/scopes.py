"""Scopes of a key, such as ``produce``, ``consume:queue``, ``admin:stream:orders.*``.

A scope is a right, a kind and a pattern of names, in which ``*`` matches any number of characters; a scope without kind
or names covers all.  ``admin`` includes ``produce`` and ``consume``.  Requests that concern no single thing, such as
creating or listing queues, need a scope without kind and names.  Names that begin with ``eventkit``, such as
``eventkit.audit``, are reserved for the library and need the plain scope ``admin``.
"""

from collections.abc import Iterable

from .. import checks

RIGHTS = ("produce", "consume", "admin")
RESERVED = "eventkit"
"""The prefix of the library's own names."""

KINDS = ("queue", "stream", "channel", "job", "schedule", "result", "lock", "limit")


def scopes(given: Iterable[str]) -> tuple[str, ...]:
    """Check *given* and return it without duplicates."""
    if isinstance(given, str):
        raise TypeError(f"pass scopes as a list: [{given!r}]")
    checked = tuple(dict.fromkeys(_checked(scope) for scope in given))
    if not checked:
        raise ValueError(f"a key needs a scope: {', '.join(RIGHTS)}, or for example 'produce:queue:emails'")
    return checked


def permits(scopes: Iterable[str], right: str, kind: str | None = None, name: str | None = None) -> bool:
    """Return whether *scopes* give the *right* to a thing; without a name, to all things of the kind."""
    if name is not None and name.startswith(RESERVED):
        return "admin" in scopes
    return any(_permits(scope, right, kind, name) for scope in scopes)


def _permits(scope: str, right: str, kind: str | None, name: str | None) -> bool:
    given, of, names = _parts(scope)
    if given not in (right, "admin") or (of is not None and of != kind):
        return False
    if names is None:
        return True
    return name is not None and _matches(names, name)


def _checked(scope: str) -> str:
    checks.name("scope", scope, 600)
    right, kind, names = _parts(scope)
    if right not in RIGHTS or (kind is not None and kind not in KINDS) or names == "":
        raise ValueError(
            f"{scope!r} is not a scope: use RIGHT[:KIND[:NAMES]] with a right ({', '.join(RIGHTS)}) and a kind "
            f"({', '.join(KINDS)}), for example 'produce:queue:emails.*'"
        )
    return scope


def _parts(scope: str) -> tuple[str, str | None, str | None]:
    right, *rest = scope.split(":", 2)
    return right, rest[0] if rest else None, rest[1] if len(rest) > 1 else None


def _matches(pattern: str, name: str) -> bool:
    """Return whether *name* matches *pattern*, in which ``*`` is any number of characters."""
    first, *between = pattern.split("*")
    if not between:
        return name == pattern
    last = between.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in between:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
