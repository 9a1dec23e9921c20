"""What other processes do in the tests of schedules."""

import os
import time
from datetime import datetime

import eventkit


def upcoming_in_zone(url: str, zone: str, name: str, when: str, tz: str) -> tuple[list[datetime], datetime | None]:
    """What a process in *zone* says of a schedule's fires, and of the next one of a copy that it adds itself."""
    os.environ["TZ"] = zone
    time.tzset()
    with eventkit.connect(url) as kit:
        kit.schedules.add(f"{name} in {zone}", when, "q", tz=tz)
        copy = kit.schedules.get(f"{name} in {zone}")
        assert copy is not None
        return kit.schedules.upcoming(name, 800), copy.next_at
