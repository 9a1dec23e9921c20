"""Bodies are strict JSON; load beyond the limits is refused early."""

from collections.abc import Iterator

import httpx
import pytest
from services import Served

from eventkit.conformance.clauses import proves
from eventkit.http import ServiceSettings, app

DEEP = b"[" * 64 + b"]" * 64


@pytest.fixture(params=["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: object) -> str:
    """Bodies are parsed before any database is called."""
    return f"sqlite:///{tmp_path}/served.db"


@pytest.fixture
def queue(served: Served) -> Iterator[str]:
    """Return an empty queue."""
    served("POST", "/queues", json={"name": "q"})
    yield "/queues/q/tasks"
    assert served("GET", "/queues/q/stats").json()["ready"] == 0


@proves("E2")
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b""),
        (400, b"{"),
        (400, b"payload=1"),
        (400, b'{"payload": NaN}'),
        (400, b'{"payload": -Infinity}'),
        (400, b'{"payload": 1e999}'),
        (400, b'{"payload": 1, "payload": 2}'),
        (400, b'{"payload": {"a": 1, "b": {"c": 1, "c": 2}}}'),
        (400, b'{"payload": {"a:b": 1, "\\u0061:b": 2}}'),
        (400, b'{"payload": {"a": "\\u003a", "b": 1, "b": 2}}'),
        (400, b'{"payload": "\\ud800"}'),
        (400, b'{"payload": "\xff"}'),
        (400, b'\xef\xbb\xbf{"payload": 1}'),
        (400, b'{"payload": ' + DEEP + b"}"),
        (400, b'{"payload": ' + b'[{"a":' * 32 + b"1" + b"}]" * 32 + b"}"),
        (400, b'{"payload": ' + b'[{"\\"]":' * 32 + b"1" + b"}]" * 32 + b"}"),
        (400, b'{"payload": ' + b'["]", ' * 64 + b"1" + b', "["]' * 64 + b"}"),
        (400, b'{"payload": ' + b'["", "]]", "x", ' * 64 + b"1" + b"]" * 64 + b"}"),
        (400, b'{"payload": ' + b'["[", "]", "}", ' * 64 + b"1" + b"]" * 64 + b"}"),
        (422, b"3"),
        (422, b"{}"),
        (422, b'{"payload": 1, "prio": 2}'),
        (422, b'{"payload": 1, "priority": 2.5}'),
        (422, b'{"payload": 1, "priority": 2147483648}'),
        (422, b'{"payload": 1, "priority": 2147483648.0}'),
        (422, b'{"payload": 1, "priority": 1e300}'),
        (422, b'{"payload": 1, "priority": "2"}'),
        (422, b'{"payload": 1, "delay_ms": -1}'),
        (422, b'{"payload": 1, "idempotency_key": ""}'),
        (422, b'{"payload": 1, "idempotency_key": "a\\u0000"}'),
        (422, b'[{"payload": 1}, 2]'),
        (413, b'{"payload": "' + b"x" * 524_288 + b'"}'),
    ],
)
def test_what_is_not_strictly_json_is_refused(served: Served, queue: str, status: int, body: bytes) -> None:
    """The error is a line with the reason, and nothing is written."""
    refused = served("POST", queue, content=body, headers={"content-type": "application/json"})
    problem = refused.json()
    assert (refused.status_code, problem["status"]) == (status, status)
    assert list(problem) == ["type", "title", "status", "detail", "code"]
    assert 10 < len(problem["detail"]) < 300, problem
    assert refused.headers["content-type"] == "application/problem+json"


@proves("E2")
def test_another_type_is_refused(served: Served, queue: str) -> None:
    """Forms and plain text are not JSON, NDJSON is for events, and a body without a type may be anything."""
    types = ("application/x-www-form-urlencoded", "text/plain", "application/x-ndjson", "application/json5", "")
    for headers in ({"content-type": media} for media in types):
        for path in (queue, "/queues/q/pause"):  # The one accepts only JSON, the other no body at all.
            refused = served(
                "POST", path, content=b'{"payload": 1}', headers=headers if headers["content-type"] else {}
            )
            assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_media_type"), (path, headers)
    assert not served("GET", "/queues/q/stats").json()["paused"]


@proves("E2")
def test_the_last_that_is_let_in(served: Served) -> None:
    """The deepest allowed body, and a key twice in two objects, are accepted."""
    sent = {"content-type": "application/json"}
    body = b'{"payload": ' + DEEP[1:-1] + b', "headers": {"payload": "a:b"}}'
    assert served("POST", "/streams/s/events", content=body, headers=sent).status_code == 201
    body = b'{"payload": "' + b"[{" * 99 + b'\\"' + b"]" * 99 + b'"}'
    assert served("POST", "/streams/s/events", content=body, headers=sent).status_code == 201
    body = b'{"payload": ["' + b"[" * 99 + b'", "", ' + b'"[", ' * 99 + b"0]}"
    assert served("POST", "/streams/s/events", content=body, headers=sent).status_code == 201
    body = b'[{"payload": {"a": {"a": "\\u003a{}:"}}}, {"payload": {"a": ":::"}}]'
    assert served("POST", "/streams/s/events", content=body, headers=sent).status_code == 201


@proves("E6")
@pytest.mark.parametrize("mark", ["max_wal", "max_writing"])
def test_more_than_the_database_can_take_is_refused_early(served: Served, queue: str, mark: str) -> None:
    """Above the threshold, adding calls get a later retry time, and removing calls are served."""
    strict = app(served.kit, settings=ServiceSettings(**{mark: 0}))

    async def ask(method: str, path: str, body: object = None) -> httpx.Response:
        transport = httpx.ASGITransport(strict, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.request(method, path, json=body)

    for path in (queue, "/streams/s/events", "/channels/c"):
        refused = served.run(ask("POST", path, {"payload": 1}))
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (429, "overloaded", "1")
    assert served.run(ask("POST", "/queues/q/poll")).status_code == 200
    assert served.run(ask("GET", "/health")).json()["refused"] == 3
