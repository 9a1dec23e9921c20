"""Events pruned between the plan of a query and its tasks."""

from collections.abc import Iterator
from typing import Any

import pytest

import eventkit
from eventkit.conformance import proves
from eventkit.spark.source import EventkitSource


def read(url: str, renew: Any, **options: str) -> Iterator[Any]:
    """Return the batches of a plan that was made before something happened."""
    source = EventkitSource({"url": url, "topic": "orders", **options})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    renew()
    return (batch for part in parts for batch in reader.read(part))


@proves("D5")
def test_events_pruned_before_they_are_read_are_an_error(kit: eventkit.EventKit, url: str) -> None:
    """The error has the missing offsets, or an option permits them."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(6))

    def prune() -> None:
        stream.prune(keep_count=2, keep_unconsumed=False)

    with pytest.raises(ValueError, match=f"offsets 1 to {offsets[3]} of 'orders' were to be read and are pruned: set"):
        list(read(url, prune))
    [batch] = read(url, prune, failOnDataLoss="false")
    assert batch.to_pydict()["offset"] == offsets[4:]
    stream.publish_many(range(100))
    batches = read(url, lambda: None)
    assert next(batches).num_rows < 100
    prune()
    with pytest.raises(ValueError, match="of 'orders' were to be read and are pruned: set"):
        list(batches)


@proves("D5")
def test_a_task_does_not_read_another_database(kit: eventkit.EventKit, url: str, new_identity: Any) -> None:
    """It refuses a database other than the planned one."""
    kit.stream("orders").publish(1)
    with pytest.raises(ValueError, match="is of another database than the current one"):
        list(read(url, new_identity))
