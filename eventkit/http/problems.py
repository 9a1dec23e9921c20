"""What goes wrong, as an answer: ``{error, status, code}``, where *error* is a line that names the remedy.

Whatever is raised in a route becomes a `Problem` here and nowhere else.  A route that says no by itself raises
`Refusal`; everything that the library raises has its status below.  An error of the database may say where that is and
who uses it, so the log has its text, and the answer its kind.  Any other exception is a 500 that says nothing of the
inside, and is logged.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, InternalServerException
from litestar.openapi.datastructures import ResponseSpec

from .. import errors
from ..operations.position import WentBack

logger = logging.getLogger("eventkit.http")


class Problem(msgspec.Struct, frozen=True):
    """What went wrong: a line for people, the status, and a word for programs."""

    error: str
    status: int
    code: str


class Refusal(Exception):
    """Raised by whatever answers a request with a problem."""

    def __init__(self, status: int, code: str, error: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error)
        self.problem = Problem(error, status, code)
        self.headers = dict(headers or {})


CODES = {
    400: "malformed",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "try_later",
    500: "internal",
    503: "unavailable",
}
"""The words for statuses that have no closer one."""

_STATUS: tuple[tuple[type[Exception], int, str, str | None], ...] = (
    (errors.QueueFull, 429, "queue_full", None),
    (errors.Truncated, 410, "truncated", None),
    (errors.TaskFailed, 410, "task_failed", None),
    (errors.Busy, 503, "busy", "the database is busy: try again"),
    (errors.Disconnected, 503, "unavailable", "the database does not answer: try again when it is there"),
    (WentBack, 409, "database_replaced", "the database has gone back behind you: begin anew, or name a consumer"),
    (errors.DatabaseReplaced, 503, "unavailable", "another file took the place of the database: restart the service"),
    (errors.NotMigrated, 503, "unavailable", "the database has another schema than the service: run eventkit migrate"),
    (errors.Closed, 503, "unavailable", "the service is about to end: ask another one"),
    (errors.DatabaseError, 500, "internal", "the database refused the call: the log of the service says why"),
    (errors.EventkitError, 503, "unavailable", "the database cannot be used: the log of the service says why"),
    (ValueError, 422, "invalid", None),
    (TypeError, 422, "invalid", None),
)
"""From the closest to the farthest, with what is said instead of the error's own text; everything else that the library
raises is about the database."""

_HEADERS: dict[int, dict[str, str]] = {
    413: {"connection": "close"},  # What is left of the body is not read.
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}
"""What is said with a status where nobody knows better."""


def handlers() -> dict[Any, Any]:
    """What the application does with each kind of exception."""
    return {Exception: _answer}


def documented(*statuses: int) -> dict[int, ResponseSpec]:
    """The problems among the answers of a route, for its document."""
    return {
        status: ResponseSpec(Problem, description=CODES.get(status, "gone").replace("_", " "), generate_examples=False)
        for status in statuses
    }


def problem_of(error: Exception) -> tuple[Problem, dict[str, str]]:
    """What is said of *error*, and the headers with it."""
    if isinstance(error, Refusal):
        return error.problem, _HEADERS.get(error.problem.status, {}) | error.headers
    if isinstance(error, InternalServerException):  # The framework's word for a body that does not come to its end.
        return Problem("the client went away before its request was there", 499, "gone"), {}
    if isinstance(error, HTTPException):
        status = error.status_code
        headers = _HEADERS.get(status, {}) | dict(error.headers or {})
        return Problem(_told(error), status, CODES.get(status, "refused")), headers
    for kind, status, code, said in _STATUS:
        if isinstance(error, kind):
            if said is not None:
                logger.warning("a request failed: %s", error)
            return Problem(said or str(error), status, code), _HEADERS.get(status, {})
    logger.error("a request failed", exc_info=error)
    return Problem("something failed here; the log of the service says what", 500, CODES[500]), {}


def _answer(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    problem, headers = problem_of(error)
    return Response(problem, status_code=problem.status, headers=headers, media_type="application/json")


def _told(error: HTTPException) -> str:
    """The framework's own words, with what it says of single parameters."""
    extra = error.extra if isinstance(error.extra, list) else []
    single = "; ".join(f"{one['key']}: {one['message']}" for one in extra if "key" in one and "message" in one)
    if any(one.get("key") == "data" for one in extra):
        return "a body is missing: send JSON"
    return f"{error.detail}: {single}" if single else error.detail
