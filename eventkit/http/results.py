"""Results: what tasks, or anything else with a name, came to."""

from typing import Annotated, Any

import msgspec
from litestar import Request
from litestar.params import FromPath, JSONBody, QueryParameter

from .. import arguments
from ..errors import TaskFailed
from ..operations.queue import FindQueues
from ..operations.result import AwaitResult, ResultAhead, SaveResult
from ..results import key_of
from .keys import require
from .problems import Refusal
from .routing import route
from .service import Service
from .waiting import while_there


class NewResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value to be kept for a while."""

    value: msgspec.Raw
    ttl_s: Annotated[float, msgspec.Meta(ge=0.001, le=3_162_240_000)] = 3600.0


class Result(msgspec.Struct, frozen=True):
    """What something came to."""

    id: int | str
    value: Any


Wait = Annotated[float, QueryParameter(ge=0, le=3600, description="Seconds to wait for it, if there is none.")]


def identity(text: str) -> int | str:
    """What a result is called: the number of a task, if it is one, or else a name."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 18 else text


@route("GET", "/results/{result:str}", scope="consume", on="result", problems=(404, 410))
async def get_result(
    request: Request[Any, Any, Any], service: Service, result: FromPath[str], wait_s: Wait = 0.0
) -> Result:
    """The result of a task, by its number, or of anything else, by its name; 410 if the task is dead."""
    id = identity(result)
    key, task = key_of(id), id if isinstance(id, int) else None
    found = await service.execute(AwaitResult(key, task))
    if found is None and wait_s:
        waiting = service.attempt(AwaitResult(key, task), ResultAhead(key, task), service.patience(wait_s))
        found = await while_there(request, waiting)
    if found is None:
        raise Refusal(404, "no_result", f"{result!r} has no result: wait for it with ?wait_s=20")
    if isinstance(found, TaskFailed):
        raise found
    return Result(id, found[0])


@route("PUT", "/results/{result:str}", scope="produce", on="result", status=204)
async def save_result(
    request: Request[Any, Any, Any], service: Service, result: FromPath[str], data: JSONBody[NewResult]
) -> None:
    """Save a value for a while, in place of an earlier one; for a task, by its number, who may consume of its queue."""
    id = identity(result)
    if isinstance(id, int):  # A task that is gone may have been of any queue.
        require(request, "consume", "queue", name=(await service.execute(FindQueues([id]))).get(id))
    lasts = arguments.milliseconds("ttl_s", data.ttl_s, least=1)
    save = SaveResult(key_of(id), service.raw.encode(data.value), lasts)
    with service.pressure.write():
        await service.execute(save)


routes = [get_result, save_result]
