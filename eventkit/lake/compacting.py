"""Small files made into large ones, without anybody noticing who reads meanwhile."""

from collections.abc import Iterator
from itertools import groupby

from ..operations.lake import LakeFile
from .reading import tables
from .turn import Turn
from .writing import NewFile

TARGET = 128 * 2**20
"""Bytes of a file that is large enough."""

_SMALL = 2**20
"""Bytes up to which it costs next to nothing to write them again."""

_MANY = 8


def compact(turn: Turn) -> int:
    """Replace files of which there are many by one; how many were replaced."""
    replaced = 0
    for files in crowds(turn.files()):
        made = NewFile(turn.store, turn.topic, files[0].date, turn.epoch)
        try:
            with turn.store.told("cannot be written"):
                for file in files:
                    for events in tables(turn.store, file):
                        made.write(events)
                new = made.finish()
        except BaseException:
            made.discard()
            raise
        turn.swap(files, [new])
        replaced += len(files)
    return replaced


def crowds(files: list[LakeFile]) -> Iterator[list[LakeFile]]:
    """Files to be made into one: the newest ones of a day, when they are many, and four times their largest together.

    So an event is written again a few times at most until its file is large, and a day has few files at any time.
    """
    for _, day in groupby(sorted(files, key=lambda file: (file.date, file.first)), key=lambda file: file.date):
        newest = sorted(day, key=lambda file: file.first, reverse=True)
        size = largest = chosen = 0
        for number, file in enumerate(newest, 1):
            if file.bytes >= TARGET or size + file.bytes > 2 * TARGET:
                break
            size, largest = size + file.bytes, max(largest, file.bytes)
            if number >= _MANY and (size >= 4 * largest or size <= _SMALL):
                chosen = number
        if chosen:
            yield newest[:chosen][::-1]
