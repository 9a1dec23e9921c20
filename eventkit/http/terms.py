"""The types that many routes share."""

from typing import Annotated, Any

import msgspec
from litestar.params import PathParameter

from .. import arguments

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=arguments.FOREVER)]
SignedMilliseconds = Annotated[int, msgspec.Meta(ge=-arguments.FOREVER, le=arguments.FOREVER)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=arguments.FOREVER // 1000)]
Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=arguments.MOST)]
Number = Annotated[int, msgspec.Meta(ge=0, le=arguments.MOST)]
Token = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
"""A number of 63 bits as text, because some languages have no integers as large."""

Id = Annotated[int, PathParameter(ge=0, le=arguments.MOST)]

# A parameter has to have its own bounds: those of the type that it is annotated with do not count.
IS_NAME: Any = {"min_length": 1, "max_length": 255}
IS_KEY: Any = {"min_length": 1, "max_length": 1000}
IS_MILLISECONDS: Any = {"ge": 0, "le": arguments.FOREVER}
IS_SECONDS: Any = {"ge": 0, "le": arguments.FOREVER // 1000}
IS_NUMBER: Any = {"ge": 0, "le": arguments.MOST}


class Count(msgspec.Struct, frozen=True):
    """How many it were."""

    count: int


def token(text: str) -> int:
    """The number that a token stands for."""
    return arguments.count("token", int(text))
