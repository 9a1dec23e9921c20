"""`Webhook`: a task that calls a URL."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from .. import checks
from ..retry import Exponential, Fixed, Linear, Policy, PolicyName, policy
from ..values import NewTask

CALL = "eventkit.webhook"  # The name of the task that workers run for a webhook.

DEFAULT_TIMEOUT_MS = 30_000
LONGEST_TIMEOUT_MS = 3_600_000
_LONGEST_URL = 8192

_PRINTABLE = {"pattern": checks.PRINTABLE}
_HEX = "[0-9a-fA-F]{1,4}"
_HOSTS = (
    r"[0-9A-Za-z._~%!$&'()*+,;=-]+",
    rf"\[{_HEX}(?::{_HEX}){{7}}\]",
    rf"\[(?:{_HEX}(?::{_HEX}){{0,2}})?::(?:{_HEX}(?::{_HEX}){{0,3}})?\]",
)
_PORT = "(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4})?)?"
_URL = rf"^https?://(?:{'|'.join(_HOSTS)}){_PORT}(?:[/?#][!-\[\]-~]*)?$"

CallbackUrl = Annotated[
    str,
    Meta(
        max_length=_LONGEST_URL,
        description="http:// or https://, without credentials",
        examples=["https://example.com/hook"],
        extra_json_schema={"pattern": _URL},
    ),
]
"""A URL for `callable_url`, which checks it and reports what is wrong; the pattern is for the OpenAPI document."""

Milliseconds = Annotated[int, Meta(ge=1, le=checks.FOREVER)]


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arguments of the webhook task; *retry* None means the queue's policy."""

    url: str
    payload: Any
    timeout_ms: Annotated[int, Meta(ge=1, le=LONGEST_TIMEOUT_MS)] = DEFAULT_TIMEOUT_MS
    retry: Policy | None = None


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that a worker makes: it posts *payload* to *callback_url*, and tries again when that fails.

    *max_attempts* is the number of runs; *retry_backoff*, *base_delay_ms* and *max_delay_ms* set the delays between
    them; what is None comes from the queue.  *idempotency_key* is the task's key, unique in its queue.
    """

    callback_url: CallbackUrl
    queue_name: Annotated[str, Meta(min_length=1, max_length=255, extra_json_schema=_PRINTABLE)] = "default"
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    payload: Any = msgspec.field(default_factory=dict)
    max_attempts: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    retry_backoff: PolicyName | None = None
    base_delay_ms: Milliseconds | None = None
    max_delay_ms: Milliseconds | None = None
    timeout_ms: Annotated[int, Meta(ge=1, le=LONGEST_TIMEOUT_MS)] = DEFAULT_TIMEOUT_MS
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=1000, extra_json_schema=_PRINTABLE)] | None = None
    delay_ms: Annotated[int, Meta(ge=0, le=checks.FOREVER)] = 0

    def __post_init__(self) -> None:
        callable_url(self.callback_url)
        checks.name("queue", self.queue_name)
        checks.count("timeout_ms", self.timeout_ms, least=1, most=LONGEST_TIMEOUT_MS)

    @property
    def task_payload(self) -> dict[str, Any]:
        """The payload of the task, for schedules and other ways to enqueue it."""
        call = Call(self.callback_url, self.payload, self.timeout_ms, self._retry())
        return {"task": CALL, "args": msgspec.to_builtins(call) | {"payload": self.payload}}

    def task(self) -> NewTask:
        """Return the task, for ``kit.queue(webhook.queue_name).enqueue_many([webhook.task()])``."""
        return NewTask(
            self.task_payload,
            delay=self.delay_ms / 1000 if self.delay_ms else None,
            priority=self.priority,
            max_attempts=self.max_attempts,
            key=self.idempotency_key,
            queue=self.queue_name,
        )

    def _retry(self) -> Policy | None:
        """Return the webhook's own retry policy, if it sets one."""
        given = {"base": self.base_delay_ms, "cap": self.max_delay_ms}
        delays = {name: value / 1000 for name, value in given.items() if value is not None}
        if self.retry_backoff is None and not delays:
            return None
        kinds: dict[str | None, type[Linear | Fixed]] = {"linear": Linear, "fixed": Fixed}
        return policy(kinds.get(self.retry_backoff, Exponential)(**delays))


def call_of(payload: Any) -> Call | None:
    """Return the call of a webhook task's payload; None for another task."""
    if not isinstance(payload, dict) or payload.get("task") != CALL:
        return None
    try:
        return msgspec.convert(payload.get("args"), Call)
    except msgspec.ValidationError:
        return None


def callable_url(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of *url*; raise ``ValueError`` if workers cannot call it.

    The host's addresses are checked at each call, as they may change.
    """
    if not isinstance(url, str) or not re.fullmatch("[!-~]*", url):
        raise ValueError("callback_url is not ASCII: percent-encode path and query, and write the host in punycode")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"callback_url is not a URL: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("callback_url must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("callback_url contains a user or password, which would be stored and shown: sign it instead")
    if not parts.hostname or "\\" in url or port == 0:
        raise ValueError("callback_url has no valid host: use, for example, https://example.com/hook")
    if len(url) > _LONGEST_URL:
        raise ValueError(f"callback_url is longer than {_LONGEST_URL} characters")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)
