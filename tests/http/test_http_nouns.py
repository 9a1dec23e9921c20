"""Streams, channels, webhooks, schedules, results, locks and limits over HTTP."""

import asyncio
import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from services import Served
from starlette.applications import Starlette
from starlette.routing import Mount

from eventkit.conformance.clauses import proves
from eventkit.http import Refusal


@proves("E3")
def test_events_are_appended_and_read(served: Served) -> None:
    """Events are published singly, as an array or as NDJSON, and read behind an offset, with a wait."""
    first = served("POST", "/streams/orders/events", json={"payload": {"id": 1}, "key": "1", "headers": {"a": "b"}})
    assert first.status_code == 201
    many = served("POST", "/streams/orders/events", json=[{"payload": 2}, {"payload": 3, "dedup": "x"}])
    lines = '{"payload": 4}\n\n{"payload": 5, "dedup": "x"}\n'
    ndjson = served("POST", "/streams/orders/events", content=lines, headers={"content-type": "application/x-ndjson"})
    offsets = [*first.json()["offsets"], *many.json()["offsets"], *ndjson.json()["offsets"]]
    assert offsets == [*sorted(offsets[:4]), offsets[2]]
    events = served("GET", "/streams/orders/events").json()
    assert [event["payload"] for event in events] == [{"id": 1}, 2, 3, 4]
    assert (events[0]["key"], events[0]["headers"]) == ("1", {"a": "b"})
    after = f"/streams/orders/events?after={offsets[1]}&limit=1"
    assert [event["payload"] for event in served("GET", after).json()] == [3]
    assert served("GET", f"/streams/orders/events?after={max(offsets)}&wait_s=0.05").json() == []


@proves("E3")
def test_limits_over_several_queues(served: Served) -> None:
    """They are set, listed and deleted; the answer to a producer above a rate says when to try again."""
    assert served("PUT", "/cluster-limits/gpu", json={"max_running": 3, "queues": ["b", "a"]}).status_code == 204
    gpu = {"name": "gpu", "max_running": 3, "queues": ["a", "b"], "running": 0}
    assert served("GET", "/cluster-limits").json() == {"limits": [gpu]}
    assert served("PUT", "/cluster-limits/gpu", json={"max_running": 3, "queues": []}).status_code in (400, 422)
    assert served("DELETE", "/cluster-limits/gpu").status_code == 204
    assert served("GET", "/cluster-limits").json() == {"limits": []}
    limits = {"max_bytes": 9, "strict_keys": True, "enqueue_rate": 0.1, "enqueue_burst": 1}
    made = served("POST", "/queues", json={"name": "slow", **limits}).json()["settings"]
    assert limits.items() <= made.items()
    tasks = "/queues/slow/tasks"
    assert served("POST", tasks, json={"payload": 1}, headers={"Idempotency-Key": "k"}).status_code == 201
    other = served("POST", tasks, json={"payload": 2}, headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (409, "key_conflict")
    full = served("POST", tasks, json={"payload": 2})
    assert (full.status_code, full.headers["retry-after"]) == (429, "10")
    never = served("POST", tasks, json=[{"payload": 2}] * 2)
    assert (never.status_code, never.json()["code"], "retry-after" in never.headers) == (409, "too_many", False)
    assert served("POST", tasks, json={"payload": "0123456789"}).status_code == 422


def test_consumers_move_by_acknowledgement(served: Served) -> None:
    """An ack moves forward, a seek anywhere, and pruning keeps unread events."""
    offsets = served("POST", "/streams/s/events", json=[{"payload": n} for n in range(4)]).json()["offsets"]
    consumer = "/streams/s/consumers/search"
    assert served("GET", consumer).json() == {"offset": 0}
    assert served("POST", f"{consumer}/ack", json={"offset": offsets[1]}).json() == {"moved": True}
    assert served("POST", f"{consumer}/ack", json={"offset": offsets[0]}).json() == {"moved": False}
    assert served("POST", "/streams/s/prune", json={"keep_count": 0}).json() == {"count": 2}
    gone = served("GET", "/streams/s/events?after=1")
    assert (gone.status_code, gone.json()["code"]) == (410, "truncated") if offsets[0] <= 1 else (200, "")
    assert served("POST", f"{consumer}/seek", json={"offset": 0}).json() == {"offset": 0}
    assert [one["name"] for one in served("GET", "/streams/s/consumers").json()] == ["search"]
    assert served("GET", "/streams/s/offset?at_ms=0").json() == {"offset": offsets[1]}
    assert served("DELETE", consumer).status_code == 204
    assert served("DELETE", consumer).json()["code"] == "unknown_consumer"
    assert served("GET", "/streams/s/consumers").json() == []
    changed = served("PATCH", "/streams/s", json={"keep": 60}).json()
    assert (changed["settings"]["keep"], changed["head"]) == (60, offsets[-1])
    assert list(served("GET", "/streams").json()) == ["eventkit.audit", "s"]
    assert list(served("GET", "/streams?after=eventkit.audit&limit=1").json()) == ["s"]


def test_groups_are_shown_and_changed(served: Served) -> None:
    """Members and partitions are listed; a group is paused, resumed, drained, reset and removed."""
    offsets = served("POST", "/streams/s/events", json=[{"payload": n, "key": "k"} for n in range(3)]).json()["offsets"]
    member = served.kit.stream("s").join("billing", partitions=2)
    assert served.ask(member.next(timeout=30)).payload == 0
    [shown] = served("GET", "/streams/s/groups").json()
    assert (shown["name"], shown["lag"], len(shown["partitions"])) == ("billing", 3, 2)
    assert [one["partitions"] for one in shown["members"]] == [2]
    served.ask(member.aclose())
    group = "/streams/s/groups/billing"
    assert served("POST", f"{group}/drain?wait_s=0").json() == {"drained": False}
    assert served("POST", f"{group}/reset", json={"offset": offsets[1]}).status_code == 204
    assert served("GET", group).json()["lag"] == 1
    assert served("POST", f"{group}/reset", json={"at_ms": 0}).status_code == 204
    assert served("GET", group).json()["lag"] == 3
    assert served("POST", f"{group}/reset", json={}).status_code == 422
    assert served("POST", f"{group}/pause").status_code == 204
    assert served("GET", group).json()["paused"] is True
    assert served("POST", f"{group}/resume").status_code == 204
    assert served("POST", f"{group}/reset", json={"offset": offsets[2]}).status_code == 204
    assert served("POST", f"{group}/drain").json() == {"drained": True}
    assert served("DELETE", group).status_code == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/drain")):
        assert served(method, group + path).json()["code"] == "unknown_group"
    assert served("POST", f"{group}/reset", json={"offset": 0}).json()["code"] == "unknown_group"


def test_a_webhook_is_a_task_that_calls(served: Served) -> None:
    """It is created, shown, listed, cancelled, and retried when it is dead."""
    body = {"callback_url": "https://example.com/hook", "queue_name": "calls", "payload": {"a": 1}, "max_attempts": 5}
    made = served("POST", "/webhooks", json=body | {"idempotency_key": "k", "delay_ms": 60_000})
    webhook = made.json()
    assert (made.status_code, webhook["status"], webhook["max_attempts"]) == (201, "scheduled", 5)
    again = served("POST", "/webhooks", json=body | {"idempotency_key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, webhook["id"])
    other = served("POST", "/webhooks", json={"callback_url": "https://example.com/other"}).json()
    served.ask(served.kit.queue("calls").enqueue("no webhook"))
    assert [one["id"] for one in served("GET", "/webhooks").json()] == [webhook["id"], other["id"]]
    assert [one["id"] for one in served("GET", "/webhooks?offset=1&limit=1").json()] == [other["id"]]
    assert served("GET", "/webhooks?queue=calls&status=scheduled").json() == [webhook]
    assert served("GET", "/webhooks?limit=1001").status_code == 400
    assert served("POST", f"/webhooks/{webhook['id']}/retry").json()["code"] == "webhook_scheduled"
    assert served("DELETE", f"/webhooks/{webhook['id']}").status_code == 204
    assert served("GET", f"/webhooks/{webhook['id']}").status_code == 404
    [task] = served.ask(served.kit.queue("default").claim("w"))
    assert served("DELETE", f"/webhooks/{other['id']}").json()["code"] == "webhook_running"
    served.ask(served.kit.queue("default").fail(task, "broken"))
    assert served("GET", f"/webhooks/{other['id']}").json()["error"] == "broken"
    assert served("POST", f"/webhooks/{other['id']}/retry").json()["status"] == "ready"
    assert served("POST", "/webhooks", json={"callback_url": "ftp://example.com"}).status_code == 422


def test_schedules_are_kept(served: Served) -> None:
    """Tasks or calls come at the scheduled times, and each field can be changed."""
    made = served("POST", "/schedules", json={"name": "nightly", "cron_expression": "0 3 * * *", "queue_name": "q"})
    assert (made.status_code, made.json()["when"], made.json()["payload"]) == (201, "0 3 * * *", None)
    assert served("POST", "/schedules", json={"name": "nightly", "cron_expression": "@daily"}).status_code == 409
    assert served("POST", "/schedules", json={"name": "never", "cron_expression": "0 0 30 2 *"}).status_code == 422
    call = {"callback_url": "https://example.com", "payload": {"x": 1}, "max_attempts": 3}
    changed = served("PATCH", "/schedules/nightly", json=call).json()
    assert (changed["payload"]["args"]["url"], changed["max_attempts"]) == ("https://example.com", 3)
    upcoming = served("GET", "/schedules/nightly/upcoming?limit=3").json()
    assert [moment[11:] for moment in upcoming] == ["03:00:00Z"] * 3
    assert served("POST", "/schedules/nightly/pause").json()["paused"] is True
    assert served("POST", "/schedules/nightly/resume").json()["paused"] is False
    assert [one["name"] for one in served("GET", "/schedules").json()] == ["nightly"]
    assert served("DELETE", "/schedules/nightly").status_code == 204
    assert served("GET", "/schedules/nightly").json()["code"] == "unknown_schedule"


def test_results_are_saved_and_waited_for(served: Served) -> None:
    """The id is a task's number or a name; a dead task's answer says so."""
    assert served("GET", "/results/report").json()["code"] == "no_result"
    assert served("PUT", "/results/report", json={"value": {"rows": 3}, "ttl_s": 60}).status_code == 204
    assert served("GET", "/results/report").json() == {"id": "report", "value": {"rows": 3}}
    task = served.ask(one_task(served))
    waiting = served.client.get(f"/results/{task.id}?wait_s=10")
    answer, _ = served.ask(both(waiting, served.kit.queue("q").ack(task, result="done")))
    assert answer.json() == {"id": task.id, "value": "done"}
    dead = served.ask(one_task(served))
    served.ask(served.kit.queue("q").fail(dead, "no"))
    assert served("GET", f"/results/{dead.id}").json()["code"] == "task_failed"


def test_locks_are_held_by_a_token(served: Served) -> None:
    """One client takes it, another waits, and any holder of the token releases it."""
    first = served("POST", "/locks/report/acquire", json={"ttl_ms": 60_000, "holder": "me"}).json()
    assert served("GET", "/locks/report").json()["holder"] == "me"
    assert served("POST", "/locks/report/acquire", json={}).json()["code"] == "lock_held"
    assert served("POST", "/locks/report/renew", json={"token": first["token"]}).json() == {"held": True}
    assert served("POST", "/locks/report/release", json={"token": "7"}).json() == {"held": False}
    served("POST", "/locks/other/acquire", json={})
    assert list(served("GET", "/locks").json()) == ["other", "report"]
    assert list(served("GET", "/locks?after=other").json()) == ["report"]
    waiting = served.client.post("/locks/report/acquire", json={"wait_s": 10})
    released = served.client.post("/locks/report/release", json={"token": first["token"]})
    second, _ = served.ask(both(waiting, released))
    assert second.json()["fence"] > first["fence"]


def test_limits_count(served: Served) -> None:
    """Windows and buckets are shared by all processes."""
    window = [served("POST", "/limits/calls/window", json={"count": 2, "per_s": 3600}).json() for _ in range(3)]
    assert [one["allowed"] for one in window] == [True, True, False]
    bucket = [served("POST", "/limits/mail/bucket", json={"rate": 0.001, "burst": 1}).json() for _ in range(2)]
    assert [one["allowed"] for one in bucket] == [True, False]
    assert next((one["name"], one["amount"]) for one in served("GET", "/limits").json()) == ("calls", 2)
    assert served("GET", "/workers").json() == []


def test_the_service_says_how_it_is(served: Served) -> None:
    """It answers liveness and readiness, and its document's page loads nothing from other hosts."""
    assert served("GET", "/readyz").json()["status"] == "ok"
    assert served("GET", "/health").json()["listeners"] == 0
    document = served("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    page = served("GET", "/docs").text
    assert "/queues/{queue}/poll" in page
    assert re.findall(r"(?:src|href|import|url)\W*[=(]([^\s>]+)", page) == ["openapi.json"]
    served.ask(served.kit.close())
    closed = served("GET", "/readyz")
    assert (closed.status_code, closed.json()["code"]) == (503, "ending")


async def one_task(served: Served) -> Any:
    """Return a claimed task."""
    await served.kit.queue("q").enqueue(None)
    [task] = await served.kit.queue("q").claim("w")
    return task


async def both(waiting: Any, then: Any) -> list[Any]:
    """Return the answers of a waiting call and of another made a moment later."""

    async def later() -> Any:
        await asyncio.sleep(0.2)
        return await then

    return await asyncio.gather(waiting, later())


@proves("E1")
def test_channels_are_listed_and_pruned(served: Served) -> None:
    ids = [served("POST", "/channels/listed", json={"payload": n}).json()["id"] for n in range(3)]
    assert {"name": "listed", "head": ids[-1], "notifications": 3} in served("GET", "/channels").json()
    assert served("POST", "/channels/listed/prune", json={"keep_count": 1}).json() == {"count": 2}
    assert served("POST", "/channels/listed/prune", json={}).status_code == 422
    changed = served("PATCH", "/channels/listed", json={"keep_count": 7}).json()
    assert changed == served("GET", "/channels/listed").json()
    assert (changed["head"], changed["settings"]["keep_count"]) == (ids[-1], 7)
    assert served("DELETE", "/channels").json() == {"count": 0}
    assert served("DELETE", "/channels?keep_count=0").json()["count"] >= 1
    assert served("GET", "/channels/listed").json()["head"] == 0


@pytest.mark.parametrize("noun", ["streams", "channels", "locks"])
def test_names_are_those_of_the_library(served: Served, noun: str) -> None:
    """Emoji and spaces work; control characters are refused."""
    path = {"streams": "/streams/{}/events", "channels": "/channels/{}", "locks": "/locks/{}/acquire"}[noun]
    body = {} if noun == "locks" else {"payload": 1}
    assert served("POST", path.format("a b%3A😀"), json=body).is_success
    assert served("POST", path.format("a%0Ab"), json=body).status_code in (400, 422)


@proves("E1")
def test_a_name_may_have_a_slash(served: Served) -> None:
    """It is percent-encoded in the path, under any mount point, and names the same object."""
    for name in ("a/b", "/", "a/b%2Fc/", "ü/ ?#"):
        path = quote(name, safe="")
        assert served("POST", "/queues", json={"name": name}).status_code == 201
        assert served("POST", f"/queues/{path}/tasks", json={"payload": name}).status_code == 201
        assert [task.payload for task in served.ask(served.kit.queue(name).peek())] == [name]
        assert served("GET", f"/queues/{path}").json()["name"] == name
        assert served("POST", f"/streams/{path}/consumers/{path}/ack", json={"offset": 3}).json() == {"moved": True}
        assert served.ask(served.kit.stream(name).offset(name)) == 3
        assert served("PUT", f"/results/{path}", json={"value": 1}).status_code == 204
        lock = served("POST", f"/locks/{path}/acquire", json={"holder": name}).json()
        assert (lock["name"], served("GET", f"/locks/{path}").json()["holder"]) == (name, name)
        assert served("POST", f"/queues/{path}/pause").status_code == 200
        assert served.ask(served.kit.stream("eventkit.audit").read())[-1].payload["action"].isprintable()
    assert served("GET", "/queues/a/b").status_code == 404
    outside = Starlette(routes=[Mount("/events/kit", served.client._transport.app)])  # type: ignore[attr-defined]
    client = httpx.AsyncClient(transport=httpx.ASGITransport(outside), base_url="http://shop")
    assert served.ask(client.get("/events/kit/queues/a%2Fb")).json()["name"] == "a/b"


@proves("E8")
def test_head_is_get_without_a_body(served: Served) -> None:
    """Every route and page that answers GET gives the same status and headers without a body."""
    served("POST", "/queues", json={"name": "q"})
    paths = [
        re.sub(r"{\w+}", "q", path)
        for path, at in served("GET", "/openapi.json").json()["paths"].items()
        if "get" in at
    ]
    followed = [path for path in paths if path.endswith("/sse")]
    for path in (*paths, "/", "/dashboard/queue?name=q", "/openapi.json", "/docs", "/queues?x=1"):
        head = served("HEAD", path)
        assert head.content == b""
        if path not in followed:
            get = served("GET", path)
            assert (head.status_code, head.headers["content-type"]) == (get.status_code, get.headers["content-type"])
            if path in ("/healthz", "/queues/q", "/openapi.json"):
                assert head.headers["content-length"] == str(len(get.content))
    for path in (*followed, "/dashboard/live"):  # Endless streams are closed at once for HEAD.
        assert served("HEAD", path).headers["content-type"].startswith("text/event-stream")
    assert served("HEAD", "/queues/q/poll").status_code == 405


@proves("E8")
def test_every_refusal_names_a_remedy(served: Served) -> None:
    """Those of the framework do as well; the status of one of a guard may have no name."""
    assert Refusal(460, "odd", "ask again: it is odd").problem.title
    large = {"content": b" " * 600_000, "headers": {"content-type": "application/json"}}
    for method, path, more in (("GET", "/nothing", {}), ("PUT", "/queues", {}), ("POST", "/queues", large)):
        assert ": " in served(method, path, **more).json()["detail"], path


@proves("E8")
def test_an_unknown_query_parameter_is_refused(served: Served) -> None:
    """Every route refuses it before doing anything, and lists the known ones."""
    served("POST", "/queues", json={"name": "q"})
    for path, methods in served("GET", "/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            known = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
            refused = served(method.upper(), f"{re.sub(r'{id}|{[a-z]+}', '1', path)}?worng=1")
            assert (path, refused.status_code, refused.json()["code"]) == (path, 400, "unknown_parameter")
            assert all(name in refused.json()["detail"] for name in known)
    assert served("DELETE", "/queues/q?forse=true").status_code == 400
    assert served("GET", "/queues/q").status_code == 200


@proves("E8")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/webhooks?offset="),
        ("POST", "/queues/q/poll?lease_ms="),
        ("POST", "/queues/q/poll?wait_s="),
        ("POST", "/queues/q/poll?batch="),
        ("DELETE", "/queues/q/dead?older_than_s="),
        ("GET", "/queues/q/peek?limit="),
        ("GET", "/queues/q/tasks/"),
        ("GET", "/streams/s/events?after="),
        ("GET", "/streams/s/sse?after="),
        ("GET", "/webhooks/"),
    ],
)
@pytest.mark.parametrize("number", ["-1", str(2**63), str(10**30), "1e400", "x"])
def test_a_parameter_that_no_database_has_is_refused(served: Served, method: str, path: str, number: str) -> None:
    """The route refuses it, and not the database."""
    served("POST", "/queues", json={"name": "q"})
    refused = served(method, f"{path}{number}")
    assert (refused.status_code // 100, refused.json()["status"]) == (4, refused.status_code), refused.text


@proves("E8")
def test_a_name_that_no_database_has_is_refused(served: Served) -> None:
    """Every route and page refuses it, in its path and in its parameters."""
    document = served("GET", "/openapi.json").json()
    asked = 0
    for template, methods in document["paths"].items():
        for method, operation in methods.items():
            texts = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
            texts = [name for name in texts if name not in ("after", "batch", "lease_ms", "limit", "offset", "wait_s")]
            paths = {re.sub(r"\{(?!id)\w+\}", "%00", template).replace("{id}", "1")}
            paths |= {f"{re.sub(r'{id}|{[a-z]+}', '1', template)}?{name}=%00" for name in texts}
            for path in paths - {template}:
                answer = served(method.upper(), path, json={})
                assert answer.status_code < 500, (method, path, answer.text)
                asked += 1
    for page in (
        "queue?name",
        "dead?queue",
        "task?id=1&queue",
        "queue?name=q&find",
        "stream?stream",
        "event?offset=1&stream",
    ):
        assert served("GET", f"/dashboard/{page}=%00").status_code < 500, page
    for name in ("key", "at", "before", "state", "after"):
        for page in ("stream?stream=s", "queue?name=q"):
            assert served("GET", f"/dashboard/{page}&{name}=%00").status_code < 500, (page, name)
    assert asked > 50
