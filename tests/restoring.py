"""Databases that go back to what they were."""

import re
from typing import Any


def take_back(kit: Any, url: str, offset: int) -> None:
    """Let *offset* be the last event that the database has ever had, as in a restored backup."""
    with kit.transaction() as tx:
        if url.startswith("sqlite"):
            tx.execute(f"DELETE FROM eventkit_event WHERE id > {offset}")
            tx.execute(f"UPDATE sqlite_sequence SET seq = {offset} WHERE name = 'eventkit_event'")
        else:
            [schema] = re.findall(r"schema=(\w+)", url)
            tx.execute(f"DELETE FROM {schema}.eventkit_event WHERE id > {offset}")
            tx.execute(f"SELECT setval('{schema}.eventkit_event_id_seq', {offset})")
