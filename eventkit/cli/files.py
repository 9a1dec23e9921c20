"""Files with one JSON value per line, of any size, read in batches."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from .console import Failed, Refused, progress

_BATCH = 2000
"""Lines per batch."""

_BATCH_BYTES = 4_000_000
_LONGEST = 64_000_000
"""The maximum number of bytes of a line."""


class _Batch(NamedTuple):
    values: list[Any]
    numbers: list[int]
    """Their line numbers."""
    read: int
    """Bytes of the file read so far."""
    bad: str | None
    """The error of the line after these."""


def feed(file: str, what: str, send: Callable[[list[Any]], object]) -> int:
    """Pass the values of the file to *send*, in batches that it commits one by one; return their number.

    The error names a line that is invalid or refused; the lines before it are committed, those after it are not.
    """
    sent = 0
    with opened(file) as (stream, total), progress(what, total, "lines") as advance:
        for batch in _batches(stream):
            try:
                if batch.values:
                    send(batch.values)
            except (ValueError, TypeError):
                _one_by_one(batch, send)
            sent += len(batch.values)
            advance(batch.read, sent)
            if batch.bad is not None:
                raise Failed(batch.bad)
    return sent


@contextmanager
def opened(file: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """Open the file, or stdin for ``-``; yield it with its size, if known."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    try:
        stream = open(file, "rb")  # noqa: SIM115  # an OSError of the body is not one of opening
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}") from error
    with stream:
        yield stream, os.fstat(stream.fileno()).st_size or None


def lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines, split at the greatest length."""
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
            yield _Batch(values, numbers, read, _line_error(number, f"is not JSON ({error})"))
            return
        numbers.append(number)
        if len(values) >= _BATCH or size >= _BATCH_BYTES:
            yield _Batch(values, numbers, read, None)
            values, numbers, size = [], [], 0
    yield _Batch(values, numbers, read, None)


def _one_by_one(batch: _Batch, send: Callable[[list[Any]], object]) -> None:
    """Send the values one by one, up to the line that is refused."""
    for number, value in zip(batch.numbers, batch.values, strict=True):
        try:
            send([value])
        except (ValueError, TypeError) as error:
            raise Failed(_line_error(number, f"is refused ({error})")) from None


def _line_error(number: int, reason: str) -> str:
    remedy = "fix it" if number == 1 else f"earlier lines were sent: fix it and continue with tail -n +{number}"
    return f"line {number} {reason}; {remedy}"
