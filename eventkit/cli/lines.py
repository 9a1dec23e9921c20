"""Reading files of one JSON value a line, of any size, a piece at a time."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from .progress import progress
from .refusals import Failed, Refused

_BATCH = 2000
"""Lines that are handed on at once."""

_BATCH_BYTES = 4_000_000
_LONGEST = 64_000_000
"""Bytes of a line beyond which it is none."""


class _Batch(NamedTuple):
    values: list[Any]
    numbers: list[int]
    """The lines where they stand."""
    read: int
    """Bytes of the file up to here."""
    bad: str | None
    """What is wrong with the line after these."""


def feed(file: str, what: str, send: Callable[[list[Any]], object]) -> int:
    """Hand the values of the file's lines to *send*, in batches, which it commits one by one; how many.

    A line that is no JSON or is refused is named; those before it have been sent, and none after it.
    """
    sent = 0
    with opened(file) as (stream, total), progress(what, total, "lines") as tell:
        for batch in _batches(stream):
            try:
                if batch.values:
                    send(batch.values)
            except (ValueError, TypeError):
                _one_by_one(batch, send)
            sent += len(batch.values)
            tell(batch.read, sent)
            if batch.bad is not None:
                raise Failed(batch.bad)
    return sent


@contextmanager
def opened(file: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """The file, or stdin for ``-``; and how many bytes it has, if that is known."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    try:
        stream = open(file, "rb")  # noqa: SIM115  # what is an error of opening, and what of the body, is told apart
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from error
    with stream:
        yield stream, os.fstat(stream.fileno()).st_size or None


def lines(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines, of which none is longer than can be."""
    while line := stream.readline(_LONGEST):
        yield line


def _batches(stream: IO[bytes]) -> Iterator[_Batch]:
    from msgspec import DecodeError
    from msgspec.json import Decoder

    decode = Decoder().decode
    values: list[Any] = []
    numbers: list[int] = []
    read = size = 0
    for number, line in enumerate(lines(stream), 1):
        read += len(line)
        size += len(line)
        if line.isspace():
            continue
        try:
            values.append(decode(line))
        except (DecodeError, RecursionError) as error:
            yield _Batch(values, numbers, read, _bad(number, f"is not JSON ({error})"))
            return
        numbers.append(number)
        if len(values) >= _BATCH or size >= _BATCH_BYTES:
            yield _Batch(values, numbers, read, None)
            values, numbers, size = [], [], 0
    yield _Batch(values, numbers, read, None)


def _one_by_one(batch: _Batch, send: Callable[[list[Any]], object]) -> None:
    """Send what can be sent, up to the line that cannot."""
    for number, value in zip(batch.numbers, batch.values, strict=True):
        try:
            send([value])
        except (ValueError, TypeError) as error:
            raise Failed(_bad(number, f"is refused ({error})")) from None


def _bad(number: int, reason: str) -> str:
    remedy = "mend it" if number == 1 else f"those before it were sent: mend it, and go on with tail -n +{number}"
    return f"line {number} {reason}; {remedy}"
