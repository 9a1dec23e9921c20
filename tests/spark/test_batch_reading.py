"""A stream as a table: everything there is when the query begins, and in every form."""

from datetime import UTC, datetime
from typing import Any

import eventkit


def read(spark: Any, url: str, **options: Any) -> Any:
    """The table of some options."""
    return spark.read.format("eventkit").options(url=url, **options).load()


def test_events_come_as_they_were_published(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Every column is what the kit gives, and nothing else is there."""
    orders = kit.stream("orders")
    orders.publish({"id": 1}, key="a", headers={"trace": "x", "ümlaut": "é"})
    orders.publish("🙂\u0000")
    kit.stream("others").publish(None)
    expected = orders.read()
    rows = read(spark, url, topic="orders").orderBy("offset").collect()
    assert [row.offset for row in rows] == [event.offset for event in expected]
    assert [row.topic for row in rows] == ["orders", "orders"]
    assert [row.key for row in rows] == ["a", None]
    assert [row.payload for row in rows] == ['{"id":1}', '"🙂\\u0000"']
    assert [row.headers for row in rows] == [{"trace": "x", "ümlaut": "é"}, None]
    moments = [datetime.fromtimestamp(row.created_at.timestamp(), UTC) for row in rows]
    assert moments == [event.created_at for event in expected]
