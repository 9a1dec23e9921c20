"""`Answer`: a JSON answer, encoded once and sent as it is.

The framework's own `Response` looks after cookies, caches, templates and many types of media.  An answer of ours is a
body of JSON, its length and a status, and that is most of what a short request would otherwise spend its time on.
"""

from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.types import ASGIApp, HTTPResponseStartEvent, Receive, Scope, Send

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_TYPE = (b"content-type", b"application/json")


class Answer(Response[T]):
    """*content* as JSON, with *status_code* or the route's own; nothing at all for 204."""

    def __init__(self, content: T, *, status_code: int | None = None, **more: Any) -> None:
        self.content = content
        self.status_code = status_code

    def to_asgi_response(  # type: ignore[override]
        self, app: None, request: Request[Any, Any, Any], *, status_code: int | None = None, **more: Any
    ) -> ASGIApp:
        """The answer, as the server has it."""
        status = self.status_code or status_code or 200
        body = b"" if status == 204 else _encode(self.content)
        headers = [] if status == 204 else [_TYPE, (b"content-length", b"%d" % len(body))]
        start: HTTPResponseStartEvent = {"type": "http.response.start", "status": status, "headers": headers}

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await send(start)
            await send({"type": "http.response.body", "body": body, "more_body": False})

        return answer
