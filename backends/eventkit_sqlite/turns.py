"""Sharing one writer among the threads of a process.

The first thread to come leads.  Whoever comes while it is at work waits in line; when it is done, the first
in line leads, and takes all the others along into one transaction.
"""

import threading
import time
from typing import Any

from eventkit.operations import Operation

from .writer import Job, Writer, closed


class Place:
    """A place in the line: the job, and the lock that its thread sleeps on."""

    __slots__ = ("job", "leads", "turn")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.leads = False
        self.turn = threading.Lock()
        self.turn.acquire()


class Turns:
    """Runs operations for any thread, one transaction at a time."""

    def __init__(self, writer: Writer, busy_timeout: float) -> None:
        self._writer = writer
        self._busy_timeout = busy_timeout
        self._mutex = threading.Lock()
        self._led = False
        self._closed = False
        self._line: list[Place] = []

    def run(self, operation: Operation[Any]) -> Any:
        """Run *operation*; its answer, once it is committed."""
        caller = threading.get_ident()
        with self._mutex:
            if self._closed:
                raise closed()
            if self._led:
                place = Place(Job(operation, caller, time.monotonic() + self._busy_timeout))
                self._line.append(place)
            else:
                self._led = True
                place = None
        if place is None:
            try:
                return self._writer.alone(operation, caller)
            finally:
                self._hand_over()
        while not place.job.done:
            try:
                place.turn.acquire()
            except BaseException:
                self._leave(place)
                raise
            if place.leads:
                self._lead(place)
        return place.job.result()

    def close(self) -> None:
        """Refuse new operations, and return when none is under way any more."""
        self._closed = True
        while self._led:
            time.sleep(0.001)

    def _lead(self, leader: Place) -> None:
        """Run the leader's job with all that wait beside it, then let the next one lead."""
        with self._mutex:
            company = self._line
            self._line = []
        try:
            self._writer.together([place.job for place in company])
        finally:
            leader.leads = False
            with self._mutex:
                self._line[:0] = [place for place in company if not place.job.done]
            for place in company:
                if place.job.done and place is not leader:
                    place.turn.release()
            self._hand_over()

    def _hand_over(self) -> None:
        with self._mutex:
            if self._line:
                self._line[0].leads = True
                self._line[0].turn.release()
            else:
                self._led = False

    def _leave(self, place: Place) -> None:
        """The thread was interrupted in the line; if the lead was its, somebody else gets it."""
        with self._mutex:
            if place in self._line:
                self._line.remove(place)
        if place.leads:
            self._hand_over()
