"""A process that works as a member of a consumer group, and writes each event down exactly once."""

import random
import sys
import time
from contextlib import suppress

import eventkit
from eventkit import LeaseLost, TimedOut


def work(url: str, seed: int, lease: float) -> None:
    """Handle events until killed: fail some, pause and leave from time to time."""
    chance = random.Random(seed)
    with eventkit.connect(url) as kit:
        stream = kit.stream("orders")
        while True:
            with suppress(LeaseLost, TimedOut), stream.join("workers", lease=lease, max_parked=200) as member:
                leave_at = time.monotonic() + chance.uniform(1, 8)
                while time.monotonic() < leave_at:
                    event = member.next(timeout=1)
                    if chance.random() < 0.001:
                        member.retry(event, delay=chance.uniform(0, 0.05))
                        continue
                    row = f"'{event.key}', {event.payload}, {event.offset}"
                    with kit.transaction() as tx:
                        tx.execute(f"INSERT INTO effect (key, n, event) VALUES ({row})")
                        member.save(event, tx=tx)
                if chance.random() < 0.3:
                    member.pause()
                    with suppress(TimedOut):
                        member.next(timeout=chance.uniform(0.1, 1))


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
