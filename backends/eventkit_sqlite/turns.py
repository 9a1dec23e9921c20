"""Sharing one writer among the threads of a process.

The first thread to come leads.  Whoever comes while it is at work waits in line; when it is done, the first
in line leads, and takes all the others along into one transaction.

A thread may be interrupted anywhere (Ctrl-C in the main thread).  The lead must not be lost with it, so every
step by which it passes on can be repeated, and is when it was interrupted.
"""

import threading
import time
from typing import Any

from eventkit.children import closed
from eventkit.operations import Operation

from .writer import Job, Writer


class Place:
    """A place in the line: the job, and the lock that its thread sleeps on."""

    __slots__ = ("job", "turn")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.turn = threading.Lock()
        self.turn.acquire()


class Turns:
    """Runs operations for any thread, one transaction at a time."""

    def __init__(self, writer: Writer, busy_timeout: float) -> None:
        self._writer = writer
        self._busy_timeout = busy_timeout
        self._mutex = threading.Lock()
        self._leader: object | None = None
        self._closed = False
        self._line: list[Place] = []

    def run(self, operation: Operation[Any]) -> Any:
        """Run *operation*; its answer, once it is committed."""
        caller = threading.get_ident()
        first = object()
        place: Place | None = None
        try:
            with self._mutex:
                if self._closed:
                    raise closed()
                if self._leader is None:
                    self._leader = first
                else:
                    place = Place(Job(operation, caller, time.monotonic() + self._busy_timeout))
                    self._line.append(place)
            if place is None:
                return self._writer.alone(operation, caller)
            while not place.job.done:
                place.turn.acquire()
                if self._leader is place:
                    self._lead(place)
            return place.job.result()
        except BaseException:
            if place is not None:
                self._leave(place)
            raise
        finally:
            if self._leader is first:
                try:
                    self._hand_over(first)
                except BaseException:
                    self._hand_over(first)
                    raise

    def close(self) -> None:
        """Refuse new operations, and return when none is under way any more."""
        self._closed = True
        while self._leader is not None:
            time.sleep(0.001)

    def _lead(self, leader: Place) -> None:
        """Run the leader's job with all that wait beside it, then let the next one lead."""
        company: list[Place] = []
        try:
            with self._mutex:
                company, self._line = self._line, company
            self._writer.together([place.job for place in company])
        finally:
            try:
                self._dismiss(company, leader)
            except BaseException:
                self._dismiss(company, leader)
                raise

    def _dismiss(self, company: list[Place], leader: Place) -> None:
        """Wake those whose jobs are done, and put the others back in line."""
        with self._mutex:
            self._line[:0] = [place for place in company if not place.job.done and place not in self._line]
        for place in company:
            if place.job.done and place is not leader and place.turn.locked():
                place.turn.release()
        self._hand_over(leader)

    def _hand_over(self, leader: object) -> None:
        """Let the first in line lead, unless *leader* has handed over before."""
        with self._mutex:
            if self._leader is leader:
                heir = self._line[0] if self._line else None
                self._leader = heir
                if heir is not None:
                    heir.turn.release()

    def _leave(self, place: Place) -> None:
        """The thread was interrupted in the line; if the lead was its, somebody else gets it."""
        with self._mutex:
            if place in self._line:
                self._line.remove(place)
        self._hand_over(place)
