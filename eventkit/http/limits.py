"""Limits that all processes share: whether a call may go ahead."""

from typing import Annotated

import msgspec
from litestar.params import FromPath, JSONBody

from .routing import route
from .service import Service
from .terms import AtLeastOne

Rate = Annotated[float, msgspec.Meta(ge=1e-9, le=1e12)]


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most *limit* calls in each window of *per_s* seconds."""

    limit: AtLeastOne
    per_s: Annotated[float, msgspec.Meta(ge=0.001, le=3_162_240_000)]


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """*rate* tokens a second, and *burst* at most: a second's worth by default."""

    rate: Rate
    burst: Annotated[float, msgspec.Meta(ge=1, le=1e12)] | None = None


class Decision(msgspec.Struct, frozen=True):
    """Whether the call may go ahead, and is counted."""

    allowed: bool


@route("POST", "/limits/{limit:str}/window", scope="produce", on="limit")
async def count_call(service: Service, limit: FromPath[str], data: JSONBody[Window]) -> Decision:
    """Count a call in the present window, if there is room; a call that is refused does not count."""
    return Decision(await service.kit.rate_limit(limit, data.limit, data.per_s))


@route("POST", "/limits/{limit:str}/bucket", scope="produce", on="limit")
async def take_token(service: Service, limit: FromPath[str], data: JSONBody[Bucket]) -> Decision:
    """Take a token from a bucket, if there is one."""
    return Decision(await service.kit.token_bucket(limit, data.rate, data.burst))


routes = [count_call, take_token]
