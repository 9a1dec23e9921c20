"""Sqew's spelling of routes."""

from typing import Any

from services import Served

from eventkit.http.spellings import SPELLINGS

CALLS: list[tuple[str, str, Any, int, Any]] = [
    ("POST", "", {"payload": {"to": "ann"}, "delay_ms": 0}, 201, {"id": 1, "created": True}),
    ("GET", "?limit=5", None, 200, [{"to": "ann"}]),
    ("DELETE", "", None, 200, {"count": 1}),
]
"""The requests as Sqew has them, and what they are answered."""


def test_each_spelling_is_that_of_a_route(served: Served) -> None:
    """It does what our route does; the document marks it as deprecated, and the page of it leaves it out."""
    assert [(method, "/queues/{queue:str}/messages") for method, *_ in CALLS] == list(SPELLINGS)
    served("POST", "/queues", json={"name": "mails", "max_attempts": 5})
    for method, query, body, status, expected in CALLS:
        answer = served(method, f"/queues/mails/messages{query}", **({} if body is None else {"json": body}))
        found = answer.json()
        if method == "GET":
            found = [task["payload"] for task in found]
        elif method == "POST":
            found["id"] = 1
        assert (answer.status_code, found) == (status, expected)
    document = served("GET", "/openapi.json").json()["paths"]
    assert all(document["/queues/{queue}/messages"][method.lower()]["deprecated"] for method, *_ in CALLS)
    assert "/queues/{queue}/messages" not in served("GET", "/docs").text
