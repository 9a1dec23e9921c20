"""What a key may do: scopes such as ``produce``, ``consume:queue``, ``admin:stream:orders.*``.

A scope is a right, then a kind of thing, then names of such things, in which ``*`` is any number of characters; what is
left out is all.  Whoever may administrate a thing may produce and consume there.  What belongs to no thing, such as
making queues or the list of them, takes a scope that leaves kind and names out.  Names that begin with ``eventkit``, as
in ``eventkit.audit``, are the library's own: they take the scope ``admin`` as it stands.
"""

from collections.abc import Iterable

from .. import arguments

RIGHTS = ("produce", "consume", "admin")
RESERVED = "eventkit"
"""How the names begin of what the library has for itself."""

KINDS = ("queue", "stream", "channel", "job", "schedule", "result", "lock", "limit")


def scopes(given: Iterable[str]) -> tuple[str, ...]:
    """*given*, checked."""
    if isinstance(given, str):
        raise TypeError(f"scopes are a list: [{given!r}]")
    checked = tuple(dict.fromkeys(_checked(scope) for scope in given))
    if not checked:
        raise ValueError(f"a key may do nothing without a scope: {', '.join(RIGHTS)}, or as in 'produce:queue:emails'")
    return checked


def permits(scopes: Iterable[str], right: str, kind: str | None = None, name: str | None = None) -> bool:
    """Whether any of *scopes* gives the *right* to that thing; without a name, to all things of the kind."""
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
    arguments.name("scope", scope, 600)
    right, kind, names = _parts(scope)
    if right not in RIGHTS or (kind is not None and kind not in KINDS) or names == "":
        raise ValueError(
            f"{scope!r} is no scope: a right ({', '.join(RIGHTS)}), and after colons a kind ({', '.join(KINDS)}) and "
            f"names, as in 'produce:queue:emails.*'"
        )
    return scope


def _parts(scope: str) -> tuple[str, str | None, str | None]:
    right, *rest = scope.split(":", 2)
    return right, rest[0] if rest else None, rest[1] if len(rest) > 1 else None


def _matches(pattern: str, name: str) -> bool:
    """Whether *name* is what is between the stars of *pattern*, in that order, and anything where they are."""
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
