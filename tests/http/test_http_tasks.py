"""Queues over HTTP: enqueueing, claiming and finishing tasks."""

from typing import Any

import pytest
from services import Served

from eventkit.conformance.clauses import proves


@pytest.fixture
def queue(served: Served) -> str:
    """Return a queue, and the path to it."""
    assert served("POST", "/queues", json={"name": "emails", "lease": 30}).status_code == 201
    return "/queues/emails"


def held(task: dict[str, Any]) -> dict[str, Any]:
    """Return a claimed task."""
    return {"id": task["id"], "token": task["token"]}


@proves("E1")
def test_a_task_goes_in_and_out(served: Served, queue: str) -> None:
    """A task is handed out once, and is gone when it is acked."""
    sent = served("POST", f"{queue}/tasks", json={"payload": {"to": "ann"}, "priority": 3})
    assert (sent.status_code, sent.json()["created"]) == (201, True)
    [task] = served("POST", f"{queue}/poll?batch=5").json()
    assert (task["id"], task["payload"], task["priority"]) == (sent.json()["id"], {"to": "ann"}, 3)
    assert task["lease_expires_at"].endswith("Z")
    assert served("POST", f"{queue}/poll").json() == []
    assert served("POST", f"{queue}/ack", json=held(task)).json() == [{"id": task["id"], "done": True}]
    assert served("POST", f"{queue}/ack", json=[held(task)]).json() == [{"id": task["id"], "done": False}]
    assert served("GET", f"{queue}/tasks/{task['id']}").status_code == 404


@proves("E1")
def test_many_tasks_are_one_transaction(served: Served, queue: str) -> None:
    """An array is all or nothing, and has an answer for each item."""
    mixed = [{"payload": n, "delay_ms": 60_000 if n == 2 else None} for n in range(3)]
    assert [one["created"] for one in served("POST", f"{queue}/tasks", json=mixed).json()] == [True] * 3
    assert [one["payload"] for one in served("POST", f"{queue}/poll?batch=256").json()] == [0, 1]
    assert served("GET", f"{queue}/stats").json()["scheduled"] == 1
    refused = served("POST", f"{queue}/tasks", json=[{"payload": 1}, {"payload": 2, "priority": "high"}])
    assert refused.status_code == 422
    assert served("GET", f"{queue}/stats").json()["ready"] == 0
    assert served("POST", f"{queue}/tasks", json={"payload": 1, "expires_ms": -1}).status_code == 201
    assert served("POST", f"{queue}/poll").json() == []
    assert served("GET", f"{queue}/stats").json()["dead"] == 1


@proves("E1")
def test_a_key_makes_one_task(served: Served, queue: str) -> None:
    """A known key, in the body or in the header, answers 200 with the first id."""
    first = served("POST", f"{queue}/tasks", json={"payload": 1, "idempotency_key": "k"})
    again = served("POST", f"{queue}/tasks", json={"payload": 2}, headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"id": first.json()["id"], "created": False}
    for status in (201, 200):  # Each task of an array has a key of its own.
        both = served("POST", f"{queue}/tasks", json=[{"payload": 1}] * 2, headers={"Idempotency-Key": "k"})
        assert (both.status_code, len({one["id"] for one in both.json()})) == (status, 2)


@proves("E1", "Q24", "Q25")
def test_tasks_of_a_group_and_the_settings_of_groups(served: Served, queue: str) -> None:
    """An ordered queue hands out one task of a group at a time."""
    settings = {"ordered": True, "on_dead": "stop", "group_max_running": 2, "group_rate": 5, "weights": {"ann": 2}}
    changed = served("PATCH", queue, json=settings).json()["settings"]
    assert {name: changed[name] for name in settings} == settings
    for wrong in ({"on_dead": "wait"}, {"weights": {"ann": 0}}, {"group_rate": 0}):
        assert served("PATCH", queue, json=wrong).status_code == 422
    served("POST", f"{queue}/tasks", json=[{"payload": n, "group": "ann"} for n in range(2)] + [{"payload": "other"}])
    tasks = served("POST", f"{queue}/poll?batch=9").json()
    assert [(task["payload"], task["group"]) for task in tasks] == [(0, "ann"), ("other", None)]
    assert [task["state"] for task in served("GET", f"{queue}/tasks?group=ann").json()] == ["running", "scheduled"]
    refused = served("POST", f"{queue}/tasks", json={"payload": 1, "priority": 1})
    assert refused.status_code == 422, refused.json()


@proves("E2")
@pytest.mark.parametrize(
    "text",
    ['{"b": 1,\n "a": 9007199254740993}', "-0.0", "1e308", "123456789012345678901", '"\\u0000é😀"', "null", "[ ]"],
)
def test_a_payload_is_passed_on_as_it_was_sent(served: Served, queue: str, text: str) -> None:
    """Its numbers, its text and the order of its keys are unchanged."""
    body = f'{{"payload": {text}}}'.encode()
    assert (
        served("POST", f"{queue}/tasks", content=body, headers={"content-type": "application/json"}).status_code == 201
    )
    assert f'"payload":{text},' in served("POST", f"{queue}/poll").text


def test_tasks_are_put_back_and_held_longer(served: Served, queue: str) -> None:
    """A nack has a delay, by default of the queue's policy, and marks the task dead after the last."""
    served("PATCH", queue, json={"max_attempts": 2})
    served("POST", f"{queue}/tasks", json=[{"payload": 1}, {"payload": 2}])
    first, second = served("POST", f"{queue}/poll?batch=2").json()
    longer = served("POST", f"{queue}/extend", json=[held(first) | {"lease_ms": 500_000}, held(second)])
    assert [one["done"] for one in longer.json()] == [True, True]
    assert served("POST", f"{queue}/nack", json=held(first) | {"delay_ms": 0, "error": "no"}).json()[0]["done"]
    [again] = served("POST", f"{queue}/poll").json()
    assert (again["id"], again["attempt"]) == (first["id"], 2)
    served("POST", f"{queue}/nack", json=[held(again) | {"error": "still no", "code": "NO"}])
    [dead] = served("GET", f"{queue}/dead").json()
    assert [dead[name] for name in ("id", "reason", "error", "code")] == [first["id"], "exhausted", "still no", "NO"]
    assert served("POST", f"{queue}/dead/requeue", json={"ids": [dead["id"]]}).json() == {"count": 1}
    served("POST", f"{queue}/poll")
    assert served("DELETE", f"{queue}/dead").json() == {"count": 0}


@proves("E1")
def test_tasks_end_in_every_way(served: Served, queue: str) -> None:
    """A task is acked with its result and the next tasks, failed with a code, released, snoozed, or received."""
    served("POST", "/queues", json={"name": "next"})
    served(
        "POST", f"{queue}/tasks", json=[{"payload": n, "headers": {"n": str(n)}, "max_attempts": 7} for n in range(5)]
    )
    first, *_ = tasks = served("POST", f"{queue}/poll?batch=4").json()
    # Where another test has loaded OpenTelemetry, there is also a traceparent.
    headers = [{name: one["headers"][name] for name in one["headers"].keys() - {"traceparent"}} for one in tasks]
    assert headers == [{"n": str(n)} for n in range(4)]
    assert [one["max_attempts"] for one in tasks] == [7] * 4
    done, failed, released, snoozed = map(held, tasks)
    then = [{"queue": "next", "payload": 1.0, "priority": 3.0}]
    for expected in (True, False):  # The second time the lease is over, and nothing is enqueued.
        acked = served("POST", f"{queue}/ack", json=done | {"result": {"ok": 1.0}, "then": then})
        assert acked.json() == [{"id": first["id"], "done": expected}]
    assert '"value":{"ok":1.0}' in served("GET", f"/results/{first['id']}").text.replace(" ", "")
    [following] = served("GET", "/queues/next/tasks").json()
    assert (following["payload"], following["priority"]) == (1, 3)
    assert served("POST", f"{queue}/fail", json=failed | {"error": "no", "code": "GONE"}).json()[0]["done"]
    [dead] = served("GET", f"{queue}/tasks?state=dead").json()
    assert (dead["id"], dead["reason"], dead["error"], dead["code"]) == (failed["id"], "failed", "no", "GONE")
    [group] = served("GET", f"{queue}/dead/errors").json()
    assert (group["error"], group["number"], group["last_id"]) == ("no", 1, dead["id"])
    assert served("POST", f"{queue}/release", json=released).json()[0]["done"]
    assert served("POST", f"{queue}/snooze", json=snoozed | {"delay_ms": 60_000}).json()[0]["done"]
    [last] = served("GET", f"{queue}/tasks?after={released['id']}&state=ready").json()
    received = served("POST", f"{queue}/receive?batch=9").json()
    assert [(one["id"], one["attempt"]) for one in received] == [(released["id"], 1), (last["id"], 1)]
    assert [one["state"] for one in served("GET", f"{queue}/tasks").json()] == ["dead", "scheduled"]
    unknown = served("POST", f"{queue}/ack", json=snoozed | {"then": [{"queue": "none", "payload": 1}]})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_queue")


@proves("E1")
def test_an_array_ends_as_a_whole(served: Served, queue: str) -> None:
    """An invalid or refused item leaves the others claimed; a token ends only its own claim."""
    served("POST", "/queues", json={"name": "strict", "strict_keys": True})
    served("POST", "/queues/strict/tasks", json={"payload": 1, "idempotency_key": "k"})
    served("POST", f"{queue}/tasks", json=[{"payload": n} for n in range(3)])
    first, second, third = map(held, served("POST", f"{queue}/poll?batch=3").json())
    refused = served("POST", f"{queue}/nack", json=[first, second | {"code": "a\0"}])
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    then = [{"queue": "strict", "payload": 2}]
    known = [{"queue": "strict", "payload": 2, "idempotency_key": "k"}]
    refused = served("POST", f"{queue}/ack", json=[first | {"then": then}, second | {"then": known}])
    assert (refused.status_code, refused.json()["code"]) == (409, "key_conflict")
    assert served("GET", f"{queue}/stats").json()["running"] == 3
    assert served("GET", "/queues/strict/stats").json()["ready"] == 1
    acked = served("POST", f"{queue}/ack", json=[second, first | {"then": then}]).json()
    assert acked == [{"id": second["id"], "done": True}, {"id": first["id"], "done": True}]
    twice = served("POST", f"{queue}/ack", json=[third, third | {"token": "1"}]).json()
    assert [one["done"] for one in twice] == [True, False]


def test_a_task_runs_at_a_moment(served: Served, queue: str) -> None:
    """A moment has a time zone, is one that databases store, and stands beside no delay."""
    at = {"payload": 1, "run_at": "2090-01-31T09:00:00+01:00"}
    id = served("POST", f"{queue}/tasks", json=at).json()["id"]
    assert served("GET", f"{queue}/tasks/{id}").json()["run_ms"] == 3_789_532_800_000
    beyond = ("2090-01-31T09:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")
    for wrong in (at | {"delay_ms": 1}, *(at | {"run_at": moment} for moment in beyond)):
        assert served("POST", f"{queue}/tasks", json=wrong).status_code == 422


def test_reading_tasks_claims_none(served: Served, queue: str) -> None:
    """Peeking, getting and counting leave the task unchanged; deleting does not."""
    id = served("POST", f"{queue}/tasks", json={"payload": "look"}).json()["id"]
    [seen] = served("GET", f"{queue}/peek").json()
    assert (seen["id"], seen["state"], seen["payload"]) == (id, "ready", "look")
    assert served("GET", f"{queue}/tasks/{id}").json() == seen
    [task] = served("POST", f"{queue}/poll").json()
    assert served("DELETE", f"{queue}/tasks/{id}").json()["code"] == "task_running"
    assert served("DELETE", f"{queue}/tasks/{id}?running=true").status_code == 204
    assert served("POST", f"{queue}/ack", json=held(task)).json()[0]["done"] is False


def test_queues_are_made_changed_and_forgotten(served: Served) -> None:
    """The answers have the documented statuses."""
    assert served("GET", "/queues/none").json()["code"] == "unknown_queue"
    assert served("POST", "/queues/none/poll").status_code == 404
    made = served("POST", "/queues", json={"name": "q", "retry": [1, 5], "max_size": 2})
    assert (made.status_code, made.json()["settings"]["max_size"]) == (201, 2)
    assert served("POST", "/queues", json={"name": "q"}).json()["code"] == "queue_exists"
    assert served("PATCH", "/queues/q", json={"retry": "fixed", "lease": None}).json()["settings"]["max_size"] == 2
    served("POST", "/queues/q/tasks", json=[{"payload": 1}, {"payload": 2}])
    full = served("POST", "/queues/q/tasks", json={"payload": 3})
    assert (full.status_code, full.json()["code"], full.headers["retry-after"]) == (429, "queue_full", "1")
    assert served("POST", "/queues/q/pause").json()["stats"]["paused"] is True
    assert served("POST", "/queues/q/poll").json() == []
    assert served("POST", "/queues/q/resume").json()["stats"]["paused"] is False
    assert served("DELETE", "/queues/q").json()["code"] == "queue_not_empty"
    assert served("POST", "/queues/q/purge").json() == {"count": 2}
    assert served("POST", "/queues/q/compact").json() == {"count": 0}
    for name in ("a", "r"):
        served("POST", "/queues", json={"name": name})
    assert list(served("GET", "/queues").json()) == ["a", "q", "r"]
    assert list(served("GET", "/queues?limit=1&after=a").json()) == ["q"]
    assert served("DELETE", "/queues/a").status_code == served("DELETE", "/queues/r").status_code == 204
    assert served("DELETE", "/queues/q?force=true").status_code == 204
    assert served("GET", "/queues").json() == {}


def test_a_queue_that_has_tasks_is_there(served: Served) -> None:
    """A queue made by a program without HTTP exists, and cannot be created again."""
    served.ask(served.kit.queue("own").enqueue(1))
    assert served("GET", "/queues/own").status_code == 200
    assert served("POST", "/queues", json={"name": "own"}).status_code == 409


def test_leases_end(served: Served, queue: str, url: str) -> None:
    """An unfinished task is handed out again, and an old token is invalid."""
    served("POST", f"{queue}/tasks", json={"payload": 1})
    [first] = served("POST", f"{queue}/poll?lease_ms=50").json()
    served.run(wait_for(served, f"{queue}/poll?wait_s=5"))
    assert served("POST", f"{queue}/ack", json=held(first)).json()[0]["done"] is False


async def wait_for(served: Served, path: str) -> None:
    """Return the task of a poll."""
    [again] = (await served.client.post(path)).json()
    assert again["attempt"] == 2
