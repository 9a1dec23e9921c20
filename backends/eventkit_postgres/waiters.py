"""Those who wait, and what is known of the subjects they wait for."""

import threading
from collections.abc import Callable
from itertools import count
from time import monotonic

from eventkit.operations import Outlook, Probe

KEPT = 0.1
"""Seconds that a subject stays registered when nobody sleeps on it any more; at the least a second altogether, because
each registration leaves a dead row that publishers walk past while an old transaction is open anywhere."""

_ASLEEP = 0.005
"""Seconds without a word that count as sleep.  Who is woken sooner than that is better off looking by themselves,
and so are those who would have to wake them."""


class Waiter:
    """Somebody who sleeps on *probe*; *ring* wakes them, and *told* says that it is worth a look at once."""

    __slots__ = ("asleep_since", "probe", "ring", "seen", "told")

    def __init__(self, probe: Probe, ring: Callable[[], object]) -> None:
        self.probe = probe
        self.ring = ring
        self.asleep_since = 0.0
        self.begin()

    def begin(self) -> None:
        """About to look: what was told before does not count."""
        self.seen: Outlook | None = None
        self.told = False

    def tell(self) -> None:
        """It is worth a look."""
        self.told = True
        self.ring()


class Place:
    """What waiters of this process know of one subject."""

    def __init__(self) -> None:
        self.waiters: set[Waiter] = set()
        self.asleep: set[Waiter] = set()
        """Those of them who will not look again by themselves."""
        self.slept_at = 0.0
        self.registration: int | None = None
        self.forgotten = 0
        """No registration with a lower number than this still stands in the table."""
        self.registered_at = 0.0
        self.under_way: set[str] = set()


class Waiters:
    """The waiters of one kit, whose subjects stand in ``eventkit_sleeper`` while somebody sleeps on them."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._places: dict[str, Place] = {}
        self._registrations = count(1)
        self._valid_from = 0

    def add(self, waiter: Waiter) -> None:
        """From now on *waiter* is rung."""
        with self._mutex:
            for subject in waiter.probe.subjects:
                self._places.setdefault(subject, Place()).waiters.add(waiter)

    def remove(self, waiter: Waiter) -> None:
        """The waiter has found something to do, or waits no more."""
        with self._mutex:
            for subject in waiter.probe.subjects:
                place = self._places[subject]
                place.waiters.discard(waiter)
                _rouse(place, waiter)
                if not place.waiters and place.registration is None:
                    del self._places[subject]

    def next_registration(self) -> int:
        """A number that no other registration has."""
        return next(self._registrations)

    def missing(self, waiter: Waiter) -> list[str]:
        """The subjects that are not registered, in order."""
        with self._mutex:
            return sorted({s for s in waiter.probe.subjects if self._places[s].registration is None})

    def registrations(self, waiter: Waiter) -> list[int | None]:
        """By which registration each subject stands in the table."""
        with self._mutex:
            return [self._places[subject].registration for subject in waiter.probe.subjects]

    def fall_asleep(self, waiter: Waiter, known: list[int | None]) -> bool:
        """Keep the subjects in the table until `wake_up`; False if they no longer stand there as they did before."""
        with self._mutex:
            places = [self._places[subject] for subject in waiter.probe.subjects]
            if [place.registration for place in places] != known:
                return False
            waiter.asleep_since = monotonic()
            for place in places:
                place.asleep.add(waiter)
            return True

    def wake_up(self, waiter: Waiter) -> None:
        """The waiter is about to look."""
        with self._mutex:
            for subject in waiter.probe.subjects:
                _rouse(self._places[subject], waiter)

    def register(self, subjects: list[str], registration: int, under_way: set[str]) -> None:
        """The subjects stand in the table now, and these transactions may not have seen them there."""
        with self._mutex:
            if registration < self._valid_from:
                return  # What was notified since may not have been heard.
            for subject in subjects:
                place = self._places[subject]
                if registration < place.forgotten:
                    continue  # It is being taken out of the table, or has been.
                place.registration = registration
                place.registered_at = place.slept_at = monotonic()
                place.under_way = under_way

    def under_way(self, waiter: Waiter) -> bool:
        """Whether transactions may be under way that will not notify us."""
        with self._mutex:
            return any(self._places[subject].under_way for subject in waiter.probe.subjects)

    def patience(self, waiter: Waiter, still_under_way: set[str]) -> float | None:
        """How long to wait before looking again: a tenth of how long they have been under way already."""
        with self._mutex:
            pauses = []
            for subject in waiter.probe.subjects:
                place = self._places[subject]
                place.under_way &= still_under_way
                if place.under_way:
                    pauses.append(min(1.0, max(0.002, (monotonic() - place.registered_at) / 10)))
            # Those that have just ended may have committed after we looked.
            return min(pauses, default=0.0)

    def tell(self, subject: str) -> None:
        """Somebody has changed what those who wait for *subject* wait for."""
        with self._mutex:
            place = self._places.get(subject)
            for waiter in place.waiters if place is not None else ():
                waiter.tell()

    def ring_all(self) -> None:
        """Let everybody look, or find that their kit is closed."""
        with self._mutex:
            for place in self._places.values():
                for waiter in place.waiters:
                    waiter.ring()

    def invalidate(self) -> None:
        """No registration counts any more, nor one that is just being made."""
        with self._mutex:
            self._valid_from = self.next_registration()
            for place in self._places.values():
                place.registration = None

    def retain(self, registered: set[str]) -> bool:
        """Only these subjects stand in the table; whether there should have been others."""
        with self._mutex:
            lost = [
                place for subject, place in self._places.items() if place.registration and subject not in registered
            ]
            for place in lost:
                place.registration = None
            return bool(lost)

    def forget(self) -> tuple[list[str], int, bool]:
        """What nobody has slept on lately, to be taken out of the table up to the number; whether more will follow."""
        now = monotonic()
        left: list[str] = []
        with self._mutex:
            # Somebody may just be registering; whoever begins to from now on does so with a higher number.
            last = self.next_registration()
            watched = [(subject, place) for subject, place in self._places.items() if not place.asleep]
            idle = [(subject, place) for subject, place in watched if place.registration or not place.waiters]
            for subject, place in idle:
                if now - place.slept_at >= KEPT and now - place.registered_at >= 1.0:
                    left.append(subject)
                    place.registration, place.forgotten = None, last
                    if not place.waiters:
                        del self._places[subject]
        return left, last, len(idle) > len(left)

    def by_probe(self) -> dict[Probe, list[Waiter]]:
        """The waiters, those together who ask the same."""
        with self._mutex:
            waiters: dict[Probe, list[Waiter]] = {}
            for waiter in {waiter for place in self._places.values() for waiter in place.waiters}:
                waiters.setdefault(waiter.probe, []).append(waiter)
            return waiters


def _rouse(place: Place, waiter: Waiter) -> None:
    if waiter in place.asleep:
        place.asleep.remove(waiter)
        now = monotonic()
        if now - waiter.asleep_since >= _ASLEEP:
            place.slept_at = now
