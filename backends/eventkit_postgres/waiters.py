"""Those who sleep, and what is known of the subjects they sleep on."""

from collections.abc import Callable

from eventkit.operations import Outlook, Probe


class Waiter:
    """Somebody who sleeps on *probe*; *ring* wakes them, and *told* says that it is worth a look at once."""

    __slots__ = ("probe", "ring", "seen", "told")

    def __init__(self, probe: Probe, ring: Callable[[], object]) -> None:
        self.probe = probe
        self.ring = ring
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
