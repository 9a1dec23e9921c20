"""Payloads: small JSON objects, no two of them in a row the same."""

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

_PAYLOADS = [
    {"id": number, "to": f"ann.{number}@example.com", "subject": "Your order", "total": number / 4}
    for number in range(1000)
]


def payloads(count: int) -> Iterator[Any]:
    """Yield *count* payloads."""
    return islice(cycle(_PAYLOADS), count)
