"""Authentication and authorisation of callers of the service."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import Started, connected

import eventkit
from eventkit.access import AUDIT, ApiKeys
from eventkit.conformance import proves
from eventkit.http import Keys, app
from eventkit.webhooks.signing import sign

Ask = Callable[..., httpx.Response]


class Guarded:
    """A service with a guard, and the keys of its database."""

    def __init__(self, runner: asyncio.Runner, kit: Any, **settings: Any) -> None:
        self.run, self.kit, self.keys = runner.run, kit, ApiKeys(kit)
        transport = httpx.ASGITransport(app(kit, guard=Keys(kit, **settings)), raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def key(self, *scopes: str, **more: Any) -> Any:
        """Return a new key."""

        async def add() -> Any:
            return await self.keys.add("a test", scopes, **more)

        return self.run(add())

    def ask(self, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        """Return the answer to a request with a key."""
        headers = more.pop("headers", {}) | ({} if key is None else {"Authorization": f"Bearer {key}"})
        return self.run(self.client.request(method, path, headers=headers, **more))

    def do(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call of the kit."""

        async def inside() -> Any:
            return await call()

        return self.run(inside())


@pytest.fixture
def guarded(url: str) -> Iterator[Callable[..., Guarded]]:
    """Return a function that makes the service."""
    with asyncio.Runner() as runner:
        kit = runner.run(connected(url))
        made: list[Guarded] = []

        def make(**settings: Any) -> Guarded:
            made.append(Guarded(runner, kit, **settings))
            return made[-1]

        yield make
        for one in made:
            runner.run(one.client.aclose())
        runner.run(kit.close())


ASKED = (
    ("produce", "POST", "/queues/emails/tasks", {"payload": 1}),
    ("consume", "GET", "/queues/emails", None),
    ("admin", "PATCH", "/queues/emails", {"max_attempts": 5}),
    ("consume", "GET", "/queues", None),
    ("admin", "POST", "/queues", {"name": "another"}),
    ("consume", "GET", "/queues/orders", None),
)


@proves("E18")
@pytest.mark.parametrize(
    ("scope", "may"),
    [
        ("produce", [True, False, False, False, False, False]),
        ("consume", [False, True, False, True, False, True]),
        ("admin", [True, True, True, True, True, True]),
        ("produce:queue", [True, False, False, False, False, False]),
        ("consume:queue:em*", [False, True, False, False, False, False]),
        ("admin:queue:emails", [True, True, True, False, False, False]),
        ("admin:queue:orders", [False, False, False, False, False, True]),
        ("admin:stream", [False] * 6),
    ],
)
def test_a_key_may_do_what_its_scopes_say(guarded: Callable[..., Guarded], scope: str, may: list[bool]) -> None:
    """All else is 403, and the answer names the required scope."""
    service = guarded()
    for name in ("emails", "orders"):
        service.do(lambda name=name: service.kit.queue(name).configure(max_attempts=3))
    key = service.key(scope)
    for (right, method, path, body), allowed in zip(ASKED, may, strict=True):
        answer = service.ask(method, path, key, json=body)
        assert (path, answer.status_code != 403) == (path, allowed)
        if allowed:
            assert answer.is_success, answer.text
        else:
            assert answer.json()["code"] == "forbidden"
            assert f"the scope {right}" in answer.json()["detail"]


@proves("E18")
def test_a_request_without_a_valid_key_is_refused(guarded: Callable[..., Guarded]) -> None:
    """The answer is 401 without a reason; open paths are open to all."""
    service = guarded()
    key, revoked, expired = service.key("admin"), service.key("admin"), service.key("admin", expires=0.001)
    service.do(lambda: service.keys.revoke(revoked.id))
    time.sleep(0.05)
    wrong = f"{key[:-1]}{'0' if key[-1] != '0' else '1'}"
    other = f"ek_{'0' * 16}_{key[-64:]}"
    for method, path in (("GET", "/queues"), ("POST", "/queues/emails/tasks"), ("DELETE", "/queues/emails")):
        for text in (wrong, other, revoked, expired, "", "ek_", key.upper(), "é" * 5):
            answer = service.ask(method, path, headers={"Authorization": f"Bearer {text}".encode()})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), text
            assert answer.json()["code"] == "unauthorized"
        for headers in ({}, {"Authorization": f"Basic {key}"}, {"Authorization": key}, {"X-Api-Key": key}):
            assert service.ask(method, path, headers=headers).status_code == 401
    assert service.ask("GET", "/queues", key).status_code == 200
    assert service.ask("GET", "/healthz").status_code == 200


@proves("E18")
def test_a_key_that_is_revoked_is_refused_within_a_second(guarded: Callable[..., Guarded]) -> None:
    """This includes a service that has just accepted it, and a rotated one."""
    service = guarded()
    revoked, rotated = service.key("consume"), service.key("consume")
    for key in (revoked, rotated):
        assert service.ask("GET", "/queues", key).status_code == 200
    service.do(lambda: service.keys.revoke(revoked.id))
    new = service.do(lambda: service.keys.rotate(rotated.id))
    began = time.monotonic()
    while 401 not in (answers := {service.ask("GET", "/queues", key).status_code for key in (revoked, rotated)}):
        assert time.monotonic() - began < 5
    assert time.monotonic() - began < 1.5, answers
    time.sleep(max(0.0, began + 1 - time.monotonic()))
    answers = [service.ask("GET", "/queues", key).status_code for key in (revoked, rotated, new)]
    assert answers == [401, 401, 200]


@proves("E18")
def test_where_there_was_never_a_key_a_service_may_be_open(guarded: Callable[..., Guarded]) -> None:
    """The first key closes it, and its revocation does not open the service again."""
    service, closed = guarded(open_without_keys=True), guarded()
    assert service.ask("GET", "/queues").status_code == 200
    assert closed.ask("GET", "/queues").status_code == 401
    service.client.base_url = httpx.URL("http://evil.example")  # A rebound host name.
    assert service.ask("GET", "/queues").status_code == 403
    service.client.base_url = httpx.URL("http://localhost:8888")
    assert service.ask("GET", "/queues").status_code == 200
    key = service.key("consume")
    time.sleep(1)
    assert service.ask("GET", "/queues").status_code == 401
    assert service.ask("GET", "/queues", key).status_code == 200
    service.do(lambda: service.keys.revoke(key.id))
    time.sleep(1)
    assert [service.ask("GET", "/queues", one).status_code for one in (None, key)] == [401, 401]


@proves("E18")
def test_a_key_has_its_rate_and_its_quota(guarded: Callable[..., Guarded]) -> None:
    """They hold across all services: beyond them 429 with a retry time; other keys are not affected."""
    one, two = guarded(), guarded()
    rated, counted, free = one.key("consume", rate=0.01, burst=3), one.key("consume", quota=4), one.key("consume")
    for key, most in ((rated, 3), (counted, 4)):
        services = itertools.cycle((one, two))
        answers = [next(services).ask("GET", "/queues", key) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * most + [429] * (6 - most)
        assert answers[-1].json()["code"] == "try_later"
        assert 0 < int(answers[-1].headers["retry-after"]) <= 86_400
    assert one.ask("GET", "/queues", free).status_code == 200


@proves("E18")
def test_bodies_may_have_to_be_signed(guarded: Callable[..., Guarded]) -> None:
    """A signature covers method, path and idempotency key, and expires; reading calls need none."""
    service = guarded(body_secrets=["one", "two"], open_without_keys=True)
    service.do(lambda: service.kit.queue("emails").configure(max_attempts=3))
    body, path = b'{"payload": 1}', "/queues/emails/tasks"

    def answer(signature: str | None, body: bytes = body, path: str = path, **more: str) -> int:
        headers = {"Content-Type": "application/json"} | ({"X-Eventkit-Signature": signature} if signature else {})
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        return service.ask("POST", path, headers=headers, content=body).status_code

    for secret in ("one", "two"):
        assert answer(sign(body, secrets=[secret], subject=f"POST {path}")) == 201
    signed = sign(body, secrets=["one"], subject=f"POST {path}")
    assert answer(None) == 401
    assert answer("t=1,v1=00") == 401
    assert answer(sign(body, secrets=["three"], subject=f"POST {path}")) == 401
    assert answer(sign(body, secrets=["one"], subject=f"POST {path}", at=time.time() - 301)) == 401
    assert answer(signed, body=body + b" ") == 401
    assert answer(signed, path="/queues/orders/tasks") == 401
    assert answer(signed, path=f"{path}?more=1") == 401
    keyed = sign(body, secrets=["one"], subject=f"POST {path}\norder-7\n")
    assert answer(keyed, idempotency_key="order-7") == 201
    assert answer(keyed, idempotency_key="order-7") == 200
    assert [answer(keyed), answer(keyed, idempotency_key="order-8"), answer(signed, idempotency_key="a")] == [401] * 3
    assert service.ask("DELETE", "/queues/emails", params={"force": "true"}).status_code == 401
    assert service.ask("GET", "/queues/emails").status_code == 200


@proves("E19")
def test_nothing_secret_is_in_the_log(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy and failing service logs neither keys nor payloads nor secrets, nor the database's URL."""
    monkeypatch.setenv("EVENTKIT_BODY_SECRETS", "BODYSECRET")
    monkeypatch.setenv("EVENTKIT_WEBHOOK_SECRETS", "HOOKSECRET")
    with eventkit.connect(url) as kit:
        key = ApiKeys(kit).add("a test", ["admin"])
        kit.queue("emails").configure(max_attempts=3)
    statuses: list[int] = []
    service = Started(url, tmp_path, "--webhooks", "default", "--canary")
    try:
        body = b'{"payload": "PAYLOAD"}'
        signature = sign(body, secrets=["BODYSECRET"], subject="POST /queues/emails/tasks")
        headers = {"Authorization": f"Bearer {key}", "X-Eventkit-Signature": signature}
        with httpx.Client(base_url=service.address, headers=headers) as client:
            for content in (body, body + b" ", b"\xff PAYLOAD"):
                headers = {"Content-Type": "application/json"}
                statuses.append(client.post("/queues/emails/tasks", content=content, headers=headers).status_code)
            client.get("/queues/emails/PAYLOAD?token=PAYLOAD")
            client.get("/queues", headers={"Authorization": f"Bearer {key[:-1]}"})
        assert statuses == [201, 401, 401]
        assert service.stop() == 0
    finally:
        service.process.kill()
    said = service.log.read_text()
    assert "serving on" in said
    assert [secret for secret in ("BODYSECRET", "HOOKSECRET", "PAYLOAD", key[-64:], url) if secret in said] == []


@proves("E18")
def test_a_service_for_others_takes_a_key(tmp_path: Path) -> None:
    """It listens on every address once there is a key, and requires it."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    with eventkit.connect(url) as kit:
        key = ApiKeys(kit).add("a test", ["consume"])
    service = Started(url, tmp_path, "--host", "0.0.0.0")
    try:
        address = service.address.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{address}/queues").status_code == 401
        assert httpx.get(f"{address}/queues", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        assert "no keys" not in service.log.read_text()
        assert service.stop() == 0
    finally:
        service.process.kill()


@proves("E19")
def test_actions_of_administrators_are_recorded(guarded: Callable[..., Guarded]) -> None:
    """Each action has one event with its key; reading, producing and refused calls have none."""
    service = guarded()
    key = service.key("admin", "produce", "consume")
    already = len(service.do(lambda: service.kit.stream(AUDIT).read()))
    schedule = {"name": "nightly", "cron_expression": "0 3 * * *", "queue_name": "emails"}
    asked: list[tuple[str, str, Any, int]] = [
        ("POST", "/queues", {"name": "emails"}, 201),
        ("POST", "/queues", {"name": "emails"}, 409),
        ("PATCH", "/queues/emails", {"max_attempts": 5}, 200),
        ("POST", "/queues/emails/tasks", {"payload": 1}, 201),
        ("GET", "/queues/emails", None, 200),
        ("POST", "/queues/emails/pause", None, 200),
        ("POST", "/schedules", schedule, 201),
        ("POST", "/schedules", schedule, 409),
        ("DELETE", "/queues/emails", None, 409),
        ("DELETE", "/queues/emails?force=true", None, 204),
    ]
    for method, path, body, status in asked:
        assert (path, service.ask(method, path, key, json=body).status_code) == (path, status)
    assert service.ask("POST", "/queues/emails/pause").status_code == 401
    audited = [event.payload for event in service.do(lambda: service.kit.stream(AUDIT).read())][already:]
    assert audited == [
        {"action": action, "by": key.id}
        for action in (
            "POST /queues",
            "PATCH /queues/emails",
            "POST /queues/emails/pause",
            "POST /schedules",
            "DELETE /queues/emails",
        )
    ]


def statuses(service: Guarded, key: Any, *asked: tuple[str, str, Any]) -> list[int]:
    return [service.ask(method, path, key, json=body).status_code for method, path, body in asked]


@proves("E18")
def test_webhooks_and_schedules_take_the_right_to_their_queue(guarded: Callable[..., Guarded]) -> None:
    """Without the right to produce to a queue, a key cannot fill it by a webhook, a schedule or dead tasks."""
    service = guarded()
    key = service.key("produce:webhook", "admin:schedule", "admin:limit", "admin:queue:hooks")
    boss = service.key("admin")
    for queue, status in (("hooks", 201), ("emails", 403)):
        webhook = {"callback_url": "https://example.com/", "queue_name": queue}
        assert service.ask("POST", "/webhooks", key, json=webhook).status_code == status
        schedule = {"name": queue, "cron_expression": "@every 1h", "queue_name": queue}
        assert service.ask("POST", "/schedules", key, json=schedule).status_code == status
        assert service.ask("POST", "/schedules", boss, json=schedule).status_code in (201, 409)
        assert statuses(service, key, ("PATCH", f"/schedules/{queue}", {"payload": 1})) == [
            200 if status == 201 else 403
        ]
        limit = {"max_running": 1, "queues": ["hooks", queue]}
        assert statuses(service, key, ("PUT", "/cluster-limits/all", limit)) == [204 if status == 201 else 403]
        change = {"dead_letter_to": queue}
        assert (statuses(service, key, ("PATCH", "/queues/hooks", change)) == [403]) is (status == 403)
        assert statuses(service, boss, ("POST", "/queues", {"name": f"other {queue}", **change})) == [201]
    assert service.ask("PATCH", "/schedules/hooks", key, json={"queue_name": "emails"}).status_code == 403
    assert service.ask("PATCH", "/schedules/none", key, json={"payload": 1}).status_code == 404


@proves("E18")
def test_a_webhook_is_for_those_of_its_queue_and_for_its_creator(guarded: Callable[..., Guarded]) -> None:
    """It is readable with the right to its webhooks or its queue, or by the key that made it; admins can end it."""
    service = guarded()
    maker, other = (service.key("produce:webhook", "produce:queue") for _ in range(2))
    made = {}
    for queue in ("hooks", "emails"):
        webhook = {"callback_url": "https://example.com/", "queue_name": queue, "payload": queue}
        made[queue] = service.ask("POST", "/webhooks", maker, json=webhook).json()["id"]
    for scope in ("consume:webhook:hooks", "consume:queue:hooks", "admin:queue:ho*"):
        key = service.key(scope)
        assert statuses(service, key, *(("GET", f"/webhooks/{id}", None) for id in made.values())) == [200, 403]
        lists = [("GET", f"/webhooks{query}", None) for query in ("?queue=hooks", "?queue=emails", "")]
        assert statuses(service, key, *lists) == [200, 403, 403]
    asked = [("GET", f"/webhooks/{id}", None) for id in made.values()]
    assert [statuses(service, key, *asked) for key in (maker, other)] == [[200, 200], [403, 403]]
    for key, status in ((maker, 403), (service.key("consume:webhook"), 403), (service.key("admin:webhook:hooks"), 204)):
        assert statuses(service, key, ("DELETE", f"/webhooks/{made['hooks']}", None)) == [status]
    admin, producer = service.key("admin:webhook:hooks"), service.key("produce:webhook:hooks", "produce:queue")
    assert statuses(service, admin, ("POST", f"/webhooks/{made['emails']}/retry", None)) == [403]
    assert statuses(service, producer, ("POST", "/webhooks", webhook)) == [403]


@proves("E18")
def test_names_of_the_library_take_an_administrator(guarded: Callable[..., Guarded]) -> None:
    """All names that begin with eventkit need an admin; no other scope permits them."""
    service = guarded()
    for name in ("eventkit.x", "q"):
        service.do(lambda name=name: service.kit.queue(name).configure(max_attempts=3))
    asked: list[tuple[str, str, Any]] = [
        ("POST", "/streams/eventkit.audit/events", {"payload": {"action": "forged"}}),
        ("GET", "/streams/eventkit.tasks/events", None),
        ("POST", "/locks/eventkit:schedules/acquire", {}),
        ("POST", "/limits/eventkit.key:1/window", {"count": 1, "per_s": 60}),
        ("POST", "/queues/eventkit.x/tasks", {"payload": 1}),
        ("POST", "/channels/eventkit:ready", {"payload": 1}),
    ]
    key = service.key("produce", "consume", "admin:queue", "admin:stream:eventkit.*", "admin:lock", "admin:limit")
    assert statuses(service, key, *asked) == [403] * len(asked)
    others = [(method, path.replace("eventkit", "eventki"), body) for method, path, body in asked]
    assert statuses(service, key, *others) == [201, 200, 200, 200, 404, 201]
    every = ("DELETE", "/channels?keep_count=0", None)  # Some of all channels are the library's.
    assert [statuses(service, service.key(scope), every) for scope in ("admin:channel", "admin")] == [[403], [200]]
    webhook = {"callback_url": "https://example.com/", "queue_name": "eventkit.x"}
    schedule = {"name": "s", "cron_expression": "@every 1h", "queue_name": "eventkit.x"}
    may = service.key("produce", "admin:schedule", "admin:queue")
    more: list[tuple[str, str, Any]] = [("POST", "/webhooks", webhook), ("POST", "/schedules", schedule)]
    assert statuses(service, may, *more, ("PATCH", "/queues/q", {"dead_letter_to": "eventkit.x"})) == [403] * 3
    assert statuses(service, service.key("admin"), *more, *asked[1:]) == [201, 201, 200, 200, 200, 201, 201]


@proves("E1", "E18")
def test_a_lease_is_ended_by_way_of_its_own_queue(guarded: Callable[..., Guarded]) -> None:
    """A right to another queue includes neither its tasks nor the results of its tasks."""
    service = guarded()
    for name in ("emails", "orders"):
        service.do(lambda name=name: service.kit.queue(name).enqueue(name))
    key, boss = service.key("consume:queue:orders", "produce:result"), service.key("admin")
    [held] = [
        {"id": one["id"], "token": one["token"]} for one in service.ask("POST", "/queues/emails/poll", boss).json()
    ]
    [own] = [{"id": one["id"], "token": one["token"]} for one in service.ask("POST", "/queues/orders/poll", key).json()]
    for what in ("extend", "nack", "ack"):
        outcomes = service.ask("POST", f"/queues/orders/{what}", key, json=[held]).json()
        assert outcomes == [{"id": held["id"], "done": False}], what
    value = {"value": 1}
    results = [("PUT", f"/results/{id}", value) for id in (held["id"], own["id"], 10**9, "a name")]
    assert statuses(service, key, *results) == [403, 204, 403, 204]
    both = service.ask("POST", "/queues/orders/ack", key, json=[held, own]).json()
    assert [one["done"] for one in both] == [False, True]
    assert service.ask("POST", "/queues/emails/ack", boss, json=held).json() == [{"id": held["id"], "done": True}]
