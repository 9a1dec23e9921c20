"""How many calls of one host are under way, so that one that is slow has not all slots of a worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

_LONGEST = 60.0


class Busy(Exception):
    """Raised where a host has as many calls under way, and waiting, as it may; *delay* is when it may have fewer."""

    def __init__(self, delay: float) -> None:
        super().__init__(f"busy for {delay:g} s")
        self.delay = delay


class _Host:
    def __init__(self, most: int) -> None:
        self.places = asyncio.Semaphore(most)
        self.here = 0
        self.put_off = 0
        self.seconds = 1.0


class Hosts:
    """Lets *most* calls of each host be under way, and as many wait for them; whoever comes then is put off."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._hosts: dict[tuple[str, int], _Host] = {}

    @asynccontextmanager
    async def place(self, host: str, port: int) -> AsyncIterator[None]:
        """A place among the calls of a host, or `Busy`: for as long as the calls that are in line should take."""
        key = (host, port)
        place = self._hosts.setdefault(key, _Host(self._most))
        if place.here >= 2 * self._most:
            place.put_off += 1
            raise Busy(min(_LONGEST, max(0.1, place.seconds * (1 + place.put_off / self._most))))
        place.here += 1
        try:
            async with place.places:
                began = monotonic()
                try:
                    yield
                finally:
                    place.seconds += (monotonic() - began - place.seconds) / 8
        finally:
            place.here -= 1
            if place.here <= self._most:
                place.put_off = 0
            if not place.here:
                del self._hosts[key]
