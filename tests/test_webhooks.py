"""Webhooks from the queue to their receiver, which is a real server, and their outcome."""

import json
import logging
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import databases
import pytest
import working
from databases import on_both
from receiving import Reply, receiving
from working import error_of, gone, until

from eventkit import App, EventKit, Fixed
from eventkit.conformance import proves
from eventkit.values import TaskInfo
from eventkit.webhooks import Webhook, verify
from eventkit.webhooks.call import Webhooks

url, kit = databases.url, databases.kit

SECRET = "a secret of receivers"


def calling(url: str, **settings: Any) -> App:
    """Return an app that may call this machine."""
    app = App(url)
    Webhooks(app, allow=["127.0.0.0/8"], **settings)
    return app


def enqueue(kit: EventKit, *webhooks: Webhook) -> list[int]:
    return [kit.queue(webhook.queue_name).enqueue_many([webhook.task()])[0].id for webhook in webhooks]


def info(kit: EventKit, id: int, queue: str = "default") -> TaskInfo[Any]:
    found = kit.queue(queue).get(id)
    assert found is not None
    return found


@proves("E14")
def test_a_webhook_arrives_as_it_was_asked_for(kit: EventKit, url: str) -> None:
    """The call has the payload unchanged, its sender and a signature; the answer is the result."""
    payload = {"z": "ü \x00 😀", "a": [2**53 + 1, -0.0, 1e308, None, ""]}
    with (
        receiving(reply=lambda path: Reply(201, b'{"ok": true}')) as receiver,
        working.working(calling(url, secret=["new", SECRET]), queues=["e mails/1%"]),
    ):
        url = f"{receiver.url}/hook?for=ann"
        [id] = enqueue(kit, Webhook(callback_url=url, queue_name="e mails/1%", payload=payload))
        assert kit.results.wait(id, working.PATIENCE) == {"status": 201, "body": '{"ok": true}', "truncated": False}
        until(lambda: gone(kit, id, "e mails/1%"))
    [received] = receiver.received
    assert received.path == "/hook?for=ann"
    assert json.dumps(json.loads(received.body)) == json.dumps(payload)
    expected = {
        "Host": f"127.0.0.1:{receiver.port}",
        "Content-Type": "application/json",
        "X-Eventkit-Webhook-Id": str(id),
        "X-Eventkit-Attempt": "1",
        "X-Eventkit-Queue": "e mails/1%25",
    }
    assert expected.items() <= received.headers.items()
    for secret in ("new", SECRET):
        assert verify(received.body, received.headers, secret=secret) == str(id)


@proves("E14")
@pytest.mark.parametrize(("size", "kept"), [(65_536, 65_536), (65_537, 65_536)])
def test_of_a_long_answer_the_beginning_is_kept(kit: EventKit, url: str, size: int, kept: int) -> None:
    with receiving(reply=lambda path: Reply(body=b"x" * size)) as receiver, working.working(calling(url)):
        [id] = enqueue(kit, Webhook(callback_url=receiver.url))
        answer = kit.results.wait(id, working.PATIENCE)
    assert (len(answer["body"]), answer["truncated"]) == (kept, size > kept)


@proves("E14")
def test_what_an_answer_means(kit: EventKit, url: str) -> None:
    """The webhook is done, retried or dead at once; a connection that is cut or refused is retried."""
    done, again = [200, 201, 202, 204, 299], [408, 425, 429, 500, 502, 503, 504, 599, 0]
    dead = [300, 301, 302, 304, 307, 308, 400, 401, 403, 404, 405, 409, 410, 413, 422, 451, 499]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        unused = closed.getsockname()[1]
    with receiving(reply=lambda path: Reply(int(path[1:]))) as receiver, working.working(calling(url, per_host=64)):
        ids = {
            status: enqueue(
                kit, Webhook(callback_url=f"{receiver.url}/{status}", max_attempts=4, base_delay_ms=900_000)
            )[0]
            for status in done + again + dead
        }
        [refused] = enqueue(kit, Webhook(callback_url=f"http://127.0.0.1:{unused}", base_delay_ms=900_000))
        until(lambda: kit.queue("default").stats().ready + kit.queue("default").stats().running == 0)
    assert [status for status in done if not gone(kit, ids[status])] == []
    for status in again:
        assert (status, info(kit, ids[status]).state, info(kit, ids[status]).attempt) == (status, "scheduled", 1)
    for status in dead:
        assert (status, info(kit, ids[status]).reason, info(kit, ids[status]).attempt) == (status, "failed", 1)
        assert f"the receiver answered {status}" in (info(kit, ids[status]).error or "")
    assert info(kit, refused).state == "scheduled"
    assert "cannot connect to 127.0.0.1" in (info(kit, refused).error or "")


@proves("E14")
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_job_has_so_many_runs(kit: EventKit, url: str, attempts: int) -> None:
    """Each retry has its number and a new signature."""
    with receiving(reply=lambda path: Reply(503)) as receiver, working.working(calling(url, secret=SECRET)):
        webhook = Webhook(callback_url=receiver.url, max_attempts=attempts, retry_backoff="fixed", base_delay_ms=1)
        [id] = enqueue(kit, webhook)
        assert "the receiver answered 503" in error_of(kit, id)
    runs = [str(number) for number in range(1, attempts + 1)]
    assert [received.headers["X-Eventkit-Attempt"] for received in receiver.received] == runs
    assert info(kit, id).reason == "exhausted"


def waits(kit: EventKit, id: int) -> float:
    """Return how long a webhook waits that has just failed."""
    until(lambda: info(kit, id).state == "scheduled")
    return (info(kit, id).run_at - datetime.now(UTC)).total_seconds()


@proves("E14")
def test_the_webhook_or_its_queue_sets_the_delay(kit: EventKit, url: str) -> None:
    """The webhook decides, else its queue; the receiver may ask for a later time."""
    soon = datetime.now(UTC).replace(microsecond=0)
    replies = {
        "/plain": Reply(503),
        "/seconds": Reply(503, headers={"Retry-After": "500"}),
        "/short": Reply(429, headers={"Retry-After": "3"}),
        "/date": Reply(503, headers={"Retry-After": format_datetime(soon + timedelta(seconds=700), usegmt=True)}),
        "/nonsense": Reply(503, headers={"Retry-After": "soon, I hope"}),
        "/eternity": Reply(503, headers={"Retry-After": "99999999"}),
    }
    kit.queue("default").configure(retry=Fixed(base=120, jitter=0))
    own: Any = {"retry_backoff": "fixed", "base_delay_ms": 250_000, "max_delay_ms": 250_000}
    with receiving(reply=replies.__getitem__) as receiver, working.working(calling(url)):
        expected = {
            ("/plain", False): 120,
            ("/seconds", False): 500,
            ("/short", False): 3,
            ("/date", False): 700,
            ("/nonsense", False): 120,
            ("/eternity", False): 86_400,
            ("/seconds", True): 500,
        }
        webhooks = [Webhook(callback_url=receiver.url + path, **own if mine else {}) for path, mine in expected]
        for id, (about, seconds) in zip(enqueue(kit, *webhooks), expected.items(), strict=True):
            if seconds > 10:
                assert (about, waits(kit, id)) == (about, pytest.approx(seconds, abs=20))
        [id] = enqueue(kit, Webhook(callback_url=f"{receiver.url}/plain", **own))
        assert 170 < waits(kit, id) <= 250


@proves("E14")
@pytest.mark.parametrize("reply", [Reply(late=60), Reply(body=b"x" * 600, drip=0.1)])
def test_an_answer_has_to_be_there_in_time(kit: EventKit, url: str, reply: Reply) -> None:
    """The limit covers the whole answer: one that arrives in drops is as late as one that never begins."""
    with receiving(reply=lambda path: reply) as receiver, working.working(calling(url)):
        [id] = enqueue(kit, Webhook(callback_url=receiver.url, timeout_ms=300, max_attempts=1))
        assert error_of(kit, id) == "127.0.0.1 did not answer within 300 ms"


@proves("E14")
@on_both
def test_the_lease_outlasts_the_call(kit: EventKit, url: str) -> None:
    """The lease is longer than the queue's if necessary: no other worker calls while an answer may still arrive."""
    kit.queue("default").configure(lease=2)
    with receiving(reply=lambda path: Reply(late=3600)) as receiver, working.working(calling(url), shutdown_timeout=0):
        [id] = enqueue(kit, Webhook(callback_url=receiver.url, timeout_ms=120_000))
        until(lambda: receiver.received)
        lease = info(kit, id).lease_expires_at
        assert lease is not None
        assert (lease - datetime.now(UTC)).total_seconds() == pytest.approx(135, abs=10)
        receiver.close()


@proves("E16")
def test_connections_are_used_again(kit: EventKit, url: str) -> None:
    with receiving() as receiver, working.working(calling(url), concurrency=1):
        enqueue(kit, *[Webhook(callback_url=f"{receiver.url}/{number}") for number in range(20)])
        until(lambda: len(receiver.received) == 20)
    assert len({received.connection for received in receiver.received}) == 1


@proves("E14", "E16")
def test_what_follows_an_answer_answers_no_other_call(kit: EventKit, url: str) -> None:
    """Surplus bytes could pass for another answer, so the next call has a new connection."""
    beyond = Reply(200, b"{}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", {"Content-Length": "2"})
    with (
        receiving(reply=lambda path: beyond if path == "/first" else Reply(500)) as receiver,
        working.working(calling(url), concurrency=1),
    ):
        [first] = enqueue(kit, Webhook(callback_url=f"{receiver.url}/first"))
        until(lambda: gone(kit, first))
        [second] = enqueue(kit, Webhook(callback_url=f"{receiver.url}/second", max_attempts=1))
        assert "the receiver answered 500" in error_of(kit, second)
    assert len({received.connection for received in receiver.received}) == 2


@proves("E16")
def test_a_slow_host_has_its_share_of_slots(kit: EventKit, url: str) -> None:
    """Webhooks of other hosts do not queue behind it, and its own webhooks spend no attempt while they wait."""
    slow = Reply(late=0.3)
    with (
        receiving(reply=lambda path: slow) as one,
        receiving("127.0.0.2") as other,
        working.working(calling(url, per_host=2), concurrency=6),
    ):
        enqueue(kit, *[Webhook(callback_url=one.url, max_attempts=1) for _ in range(12)])
        until(lambda: one.received)
        enqueue(kit, *[Webhook(callback_url=other.url) for _ in range(12)])
        until(lambda: len(other.received) == 12)
        assert len(one.received) < 12
        until(lambda: len(one.received) == 12)
        until(lambda: kit.queue("default").size() == 0)
    assert one.most_at_once == 2
    assert {received.headers["X-Eventkit-Attempt"] for received in one.received} == {"1"}


@proves("E16")
def test_what_is_sent_and_answered_is_not_logged(kit: EventKit, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Secrets and the path of a URL are not logged either, since receivers repeat what they were sent."""
    caplog.set_level(logging.DEBUG, "eventkit")
    reply = Reply(404, b"no such order: PAYLOAD")
    with (
        receiving(reply=lambda path: reply if "dead" in path else Reply(503)) as receiver,
        working.working(calling(url, secret=SECRET)),
    ):
        webhooks = [
            Webhook(callback_url=f"{receiver.url}/{what}?token=TOKEN", payload="PAYLOAD") for what in ("dead", "again")
        ]
        dead, _ = enqueue(kit, *webhooks)
        error_of(kit, dead)
        until(lambda: len(receiver.received) == 2)
    said = caplog.text
    assert "the receiver answered 404" in said
    assert [secret for secret in (SECRET, "PAYLOAD", "TOKEN") if secret in said] == []
