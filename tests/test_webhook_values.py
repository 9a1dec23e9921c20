"""Requests for webhooks, and verification of calls, without a network."""

import time
from typing import Any

import msgspec
import pytest

from eventkit import Exponential, Fixed, Linear
from eventkit.conformance import proves
from eventkit.webhooks import Call, Replays, SignatureRefused, Webhook, call_of, verify
from eventkit.webhooks.signing import check, sign

URL = "https://example.com/hook?for=ann"


@proves("E14")
def test_a_webhook_is_a_task() -> None:
    """Fields about runs, times and keys go to the task; those about the call go to the payload."""
    webhook = Webhook(
        callback_url=URL,
        queue_name="emails",
        priority=7,
        payload={"to": "ann"},
        max_attempts=5,
        timeout_ms=1500,
        idempotency_key="welcome-ann",
        delay_ms=2500,
    )
    task = webhook.task()
    assert (task.queue, task.priority, task.max_attempts, task.key, task.delay) == ("emails", 7, 5, "welcome-ann", 2.5)
    assert call_of(task.payload) == Call(URL, {"to": "ann"}, 1500)
    assert call_of(msgspec.json.decode(msgspec.json.encode(task.payload))) == Call(URL, {"to": "ann"}, 1500)


@proves("E14")
def test_what_is_left_out_is_as_the_queue_says() -> None:
    task = Webhook(callback_url=URL).task()
    assert (task.queue, task.priority, task.max_attempts, task.key, task.delay) == ("default", 0, None, None, None)
    assert call_of(task.payload) == Call(URL, {}, 30_000, None)


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        ({"retry_backoff": "linear"}, Linear()),
        ({"base_delay_ms": 250}, Exponential(base=0.25)),
        ({"retry_backoff": "fixed", "base_delay_ms": 500, "max_delay_ms": 60_000}, Fixed(base=0.5, cap=60)),
    ],
)
def test_a_webhook_may_have_a_policy_of_its_own(said: dict[str, Any], policy: Any) -> None:
    call = call_of(Webhook(callback_url=URL, **said).task().payload)
    assert call is not None
    assert call.retry == policy


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/hook",
        "//example.com/hook",
        "ftp://example.com/hook",
        "file:///etc/passwd",
        "https:///hook",
        "https://ann:secret@example.com/hook",
        "https://example.com@evil.example/hook",
        "https://exa mple.com/",
        "https://example.com/\r\nHost: evil",
        "https://example.com\\@evil.example/",
        "https://exämple.com/",
        "https://example.com:port/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://[::1/",
        "https://example.com/" + "a" * 8192,
    ],
)
def test_what_is_no_url_to_call_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="callback_url"):
        Webhook(callback_url=url)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"callback_url": url}, Webhook)


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue_name": "a\n"},
        {"queue_name": ""},
        {"max_attempts": 0},
        {"timeout_ms": 0},
        {"delay_ms": -1},
        {"retry_backoff": "never"},
        {"callback": URL},
    ],
)
def test_what_a_webhook_cannot_be_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"callback_url": URL} | wrong, Webhook)


def test_other_tasks_are_no_calls() -> None:
    for payload in (None, [], {}, {"task": "send", "args": {"url": URL, "payload": 1}}, {"task": "eventkit.webhook"}):
        assert call_of(payload) is None


def headers(body: bytes, secret: str, id: str = "7", at: float | None = None) -> dict[str, str]:
    return {"x-eventkit-webhook-id": id, "X-EVENTKIT-SIGNATURE": sign(body, secrets=[secret], subject=id, at=at)}


@proves("E17")
def test_a_call_is_verified() -> None:
    """Any of the secrets is accepted, with headers in any case."""
    assert verify(b"{}", headers(b"{}", "one"), secret="one") == "7"
    assert verify(b"{}", headers(b"{}", "one"), secret=["two", "one"]) == "7"
    two = {"X-Eventkit-Webhook-Id": "7", "X-Eventkit-Signature": sign(b"{}", secrets=["new", "old"], subject="7")}
    for secret in ("new", "old"):
        assert verify(b"{}", two, secret=secret) == "7"


@proves("E17")
@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b"{} ", {}),
        (b"{}", {"x-eventkit-webhook-id": "8"}),
        (b"{}", {"X-EVENTKIT-SIGNATURE": ""}),
        (b"{}", {"X-EVENTKIT-SIGNATURE": "t=1,v1=00"}),
        (b"{}", {"X-EVENTKIT-SIGNATURE": "t=1,t=2,v1=00"}),
        (b"{}", {"X-EVENTKIT-SIGNATURE": f"t={'9' * 5000},v1=00"}),
        (b"{}", {"X-EVENTKIT-SIGNATURE": "t=²,v1=ü"}),
    ],
)
def test_what_was_not_sent_by_us_is_refused(body: bytes, changed: dict[str, str]) -> None:
    with pytest.raises(SignatureRefused):
        verify(body, headers(b"{}", "one") | changed, secret="one")
    with pytest.raises(SignatureRefused):
        verify(b"{}", headers(b"{}", "one"), secret="two")


@proves("E17")
@pytest.mark.parametrize("off", [-301, 301])
def test_a_call_of_another_time_is_refused(off: int) -> None:
    """A call from the past or the future is refused; a changed time invalidates the signature."""
    now = time.time()
    with pytest.raises(SignatureRefused, match="not of the last 300 s"):
        verify(b"{}", headers(b"{}", "one", at=now + off), secret="one")
    verify(b"{}", headers(b"{}", "one", at=now + off), secret="one", tolerance=400)
    signed = sign(b"{}", secrets=["one"], subject="7", at=now + off).split(",")[1]
    with pytest.raises(SignatureRefused, match="does not match the body"):
        check(b"{}", f"t={int(now)},{signed}", secrets=["one"], subject="7")


@proves("E17")
def test_a_call_that_comes_again_is_refused() -> None:
    """It is refused where calls are remembered; another attempt has a new signature."""
    replays, now = Replays(), time.time()
    first, again = headers(b"{}", "one", at=now), headers(b"{}", "one", at=now + 1)
    verify(b"{}", first, secret="one", replays=replays)
    with pytest.raises(SignatureRefused, match="replayed call"):
        verify(b"{}", first, secret="one", replays=replays)
    verify(b"{}", again, secret="one", replays=replays)


@pytest.mark.parametrize("secret", ["", [], ["one", ""]])
def test_nothing_is_verified_without_a_secret(secret: Any) -> None:
    with pytest.raises(ValueError, match="pass the secret"):
        verify(b"{}", headers(b"{}", "one"), secret=secret)
