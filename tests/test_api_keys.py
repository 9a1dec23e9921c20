"""API keys in the database, and the rights of their scopes."""

import time
from collections.abc import Callable
from typing import Any

import apps
import pytest
from moving import Places

import eventkit
from eventkit.access import AUDIT, ApiKeys, NewKey, check_scopes, hash_of, id_of, permits
from eventkit.access import proves as is_proved
from eventkit.conformance import proves
from eventkit.conformance.flavours import unwrapped
from eventkit.testing import advance

url, now = apps.url, apps.now


@pytest.fixture
def keys(kit: Any) -> ApiKeys:
    return ApiKeys(unwrapped(kit), by="ann")


def lets_in(keys: ApiKeys, now: Any, key: str) -> bool:
    held = now(keys.get(id_of(key) or ""))
    return held is not None and is_proved(key, held.hashes)


@proves("E18")
def test_a_key_is_kept_as_a_hash(keys: ApiKeys, kit: Any, now: Any, url: str) -> None:
    """The other attributes are stored as given."""
    key = now(keys.add("the shop", ["produce:queue:emails", "consume"], rate=2.5, burst=7, quota=1000))
    assert isinstance(key, NewKey)
    assert key not in repr(key)
    [found] = now(keys.list())
    assert (found.id, found.name) == (key.id, "the shop")
    assert found.scopes == ("produce:queue:emails", "consume")
    assert (found.rate, found.burst, found.quota, found.expires_at, found.revoked_at) == (2.5, 7.0, 1000, None, None)
    assert lets_in(keys, now, key)
    held = now(keys.get(key.id))
    assert held.hashes == (hash_of(key),)
    secret = key.rpartition("_")[2]
    assert secret not in str(held)
    assert secret not in str(kit.stream(AUDIT).read())


@proves("E18")
def test_a_revoked_key_is_refused(keys: ApiKeys, now: Any) -> None:
    key, other = now(keys.add("one", ["admin"])), now(keys.add("other", ["admin"]))
    assert now(keys.revoke(key.id))
    assert not now(keys.revoke(key.id))
    assert now(keys.rotate(key.id)) is None
    assert not lets_in(keys, now, key)
    assert lets_in(keys, now, other)
    assert {found.id: found.revoked_at is None for found in now(keys.list())} == {key.id: False, other.id: True}


@proves("E18")
def test_an_expired_key_is_refused(keys: ApiKeys, kit: Any, now: Any) -> None:
    """The database's clock decides."""
    key = now(keys.add("one", ["admin"], expires=60))
    advance(kit, 59)
    assert lets_in(keys, now, key)
    advance(kit, 1.5)
    assert not lets_in(keys, now, key)
    assert now(keys.rotate(key.id)) is None


@proves("E18")
def test_a_key_gets_another_secret(keys: ApiKeys, kit: Any, now: Any) -> None:
    """The old secret is valid for the given time, and no longer."""
    first = now(keys.add("one", ["admin"]))
    second = now(keys.rotate(first.id, grace=60))
    assert second.id == first.id
    assert lets_in(keys, now, first)
    assert lets_in(keys, now, second)
    advance(kit, 61)
    assert not lets_in(keys, now, first)
    third = now(keys.rotate(first.id))
    assert [lets_in(keys, now, key) for key in (first, second, third)] == [False, False, True]


@proves("E19")
def test_changes_of_keys_are_recorded(keys: ApiKeys, kit: Any, now: Any) -> None:
    """Each change has one event with its author; a change that did nothing has none."""
    key = now(keys.add("the shop", ["produce"]))
    now(keys.rotate(key.id))
    now(keys.revoke(key.id))
    now(keys.revoke(key.id))
    audited = [event.payload for event in kit.stream(AUDIT).read()]
    assert audited == [
        {"action": "key.add", "by": "ann", "key": key.id, "name": "the shop", "scopes": ["produce"]},
        {"action": "key.rotate", "by": "ann", "key": key.id},
        {"action": "key.revoke", "by": "ann", "key": key.id},
    ]


@proves("E19")
def test_a_change_and_its_event_are_one(url: str) -> None:
    """In the caller's transaction too, both are committed or neither."""
    with eventkit.connect(url) as kit:
        keys = ApiKeys(kit)
        with pytest.raises(RuntimeError), kit.transaction() as tx:
            keys.add("one", ["admin"], tx=tx)
            raise RuntimeError
        assert (keys.list(), kit.stream(AUDIT).read()) == ([], [])
        with kit.transaction() as tx:
            key = keys.add("one", ["admin"], tx=tx)
        assert [found.id for found in keys.list()] == [key.id]
        assert len(kit.stream(AUDIT).read()) == 1


WRONG: list[dict[str, Any]] = [
    *({"scopes": scopes} for scopes in ([], "admin", ["read"], ["produce:table"], ["produce:queue:"], [""])),
    *({"name": name} for name in ("", "a\n")),
    {"rate": 0},
    {"burst": 2},
    {"quota": 0},
    {"expires": 0},
]


def test_what_a_key_cannot_be_is_refused(tmp_path: Any) -> None:
    with eventkit.connect(f"sqlite:///{tmp_path}/keys.db") as kit:
        for wrong in WRONG:
            with pytest.raises((ValueError, TypeError)):
                ApiKeys(kit).add(**({"name": "one", "scopes": ["admin"]} | wrong))
        assert ApiKeys(kit).list() == []


def test_keys_move_with_their_database(tmp_path: Any, postgres_url: str) -> None:
    """Callers keep their keys when the database is copied."""
    places = Places(tmp_path, postgres_url)
    first, second, third = places.fresh("sqlite"), places.fresh("postgres"), places.fresh("sqlite")
    with eventkit.connect(first) as kit:
        keys = ApiKeys(kit)
        key = keys.add("one", ["admin", "consume:queue:ü*"], rate=0.1, burst=3.5, quota=5, expires=3600)
        gone = keys.add("two", ["produce"])
        assert keys.revoke(gone.id)
        later = keys.rotate(key.id, grace=3600)
        listed = keys.list()
    for here, there in ((first, second), (second, third)):
        assert eventkit.copy(here, there)["eventkit_api_key"] == 2
        with eventkit.connect(there) as kit:
            keys = ApiKeys(kit)
            assert keys.list() == listed
            assert [lets_in(keys, lambda held: held, one) for one in (key, later, gone)] == [True, True, False]


RIGHTS = ("produce", "consume", "admin")
NAMES = {"queue": ("emails", "emails.eu", "orders"), "stream": ("emails", "orders")}
GIVEN: dict[str, Callable[[str, str | None, str | None], bool]] = {
    "produce": lambda right, kind, name: right == "produce",
    "consume:queue": lambda right, kind, name: right == "consume" and kind == "queue",
    "admin": lambda right, kind, name: True,
    "admin:stream": lambda right, kind, name: kind == "stream",
    "produce:queue:emails": lambda right, kind, name: (right, kind, name) == ("produce", "queue", "emails"),
    "consume:queue:emails*": lambda right, kind, name: (
        right == "consume" and kind == "queue" and name is not None and name.startswith("emails")
    ),
    "admin:queue:*s": lambda right, kind, name: kind == "queue" and name is not None and name.endswith("s"),
    "consume:stream:*": lambda right, kind, name: right == "consume" and kind == "stream" and name is not None,
}


@proves("E18")
@pytest.mark.parametrize("scope", GIVEN)
def test_what_a_scope_permits(scope: str) -> None:
    """A scope permits its right on its names and nothing else; an admin scope includes the other rights on them."""
    things = [(None, None), *((kind, name) for kind, names in NAMES.items() for name in (None, *names))]
    for right in RIGHTS:
        for kind, name in things:
            assert permits([scope], right, kind, name) is GIVEN[scope](right, kind, name), (right, kind, name)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a*", "a", True),
        ("*a", "ba", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "acb", False),
        ("**", "", True),
        ("a.b", "axb", False),
        ("a[b]?", "a[b]?", True),
        ("a:b:*", "a:b:c", True),
        ("a", "a\n", False),
        ("*", "a\nb", True),
    ],
)
def test_names_with_stars(pattern: str, name: str, matches: bool) -> None:
    assert permits([f"produce:queue:{pattern}"], "produce", "queue", name) is matches


def test_no_pattern_takes_long() -> None:
    """The time is bounded for any number of stars."""
    scope = check_scopes(["produce:queue:" + "*a" * 250 + "b"])
    began = time.perf_counter()
    assert not permits(scope, "produce", "queue", "a" * 255)
    assert time.perf_counter() - began < 0.5


def test_what_is_no_key_is_none() -> None:
    good = f"ek_{'0' * 16}_{'a' * 64}"
    assert id_of(good) == "0" * 16
    for bad in ("", "ek_", good[:-1], good + "a", good.upper(), good + "\n", f" {good}", good.replace("0", "٠")):
        assert id_of(bad) is None
