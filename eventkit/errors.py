"""What can go wrong, as a tree.

Expected outcomes are return values (a lost lease is ``False``); what is raised is a surprise, and every
message names the remedy.  Bad arguments are plain ``ValueError`` and ``TypeError``.

::

    EventkitError
    ├── UnknownBackend (LookupError)   no installed package serves this URL
    ├── NotMigrated                    the schema is missing, older or newer than this code
    ├── ForeignTransaction             tx belongs to another database or another SQLite library
    ├── Closed                         the kit was closed, or inherited through fork()
    ├── QueueFull                      the queue's max_size is reached
    ├── LockHeld                       somebody else holds the lock
    ├── TaskFailed                     the task whose result was waited for died
    ├── Truncated                      events the reader had not seen were pruned
    ├── DatabaseReplaced               the SQLite file is no longer the one that was opened
    └── Unavailable                    worth another try
        ├── Busy                       a lock was not obtained in time
        └── Disconnected               the connection broke
"""


class EventkitError(Exception):
    """The base of everything this library raises on its own account."""


class UnknownBackend(EventkitError, LookupError):
    """Raised by `connect` when no installed package serves the URL's scheme."""


class NotMigrated(EventkitError):
    """Raised by `connect` when the schema is missing, older or newer than the code; run the named command."""


class ForeignTransaction(EventkitError):
    """Raised by calls with ``tx=`` that belongs to another database, or to another SQLite library."""


class Closed(EventkitError):
    """Raised by every call on a kit that was closed, or that a forked child inherited; connect again."""


class QueueFull(EventkitError):
    """Raised by `enqueue` when the queue's ``max_size`` is reached; wait for room with ``wait=`` or raise it."""


class LockHeld(EventkitError):
    """Raised on entering a lock that somebody else holds; wait with ``acquire(wait=seconds)``."""


class TaskFailed(EventkitError):
    """Raised to who waits for the result of a task that died; the message is the task's error."""


class Truncated(EventkitError):
    """Raised by `read` and `subscribe` when events after the reader's position were pruned.

    ``first`` and ``last`` bound the offsets that are missing.
    """

    def __init__(self, topic: str, first: int, last: int) -> None:
        super().__init__(
            f"events {first} to {last} of topic {topic!r} were pruned before they were read: "
            f"go on behind the gap with on_truncated='skip', or seek() to where you want to be"
        )
        self.topic = topic
        self.first = first
        self.last = last


class DatabaseReplaced(EventkitError):
    """Raised in every waiter when another file took the place of the database; close the kit and connect again."""


class Unavailable(EventkitError):
    """Raised when the database cannot serve the call now; another try may succeed."""


class Busy(Unavailable):
    """Raised when another writer kept the lock for longer than the busy timeout; try again or raise the timeout."""


class Disconnected(Unavailable):
    """Raised when the connection to the database broke during the call."""


PASSING = (Busy, Disconnected)
"""What passes by itself, so that whoever iterates for ever looks again instead of ending."""
