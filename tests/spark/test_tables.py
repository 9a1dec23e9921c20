"""Tasks, dead tasks, results, schedules and consumers as tables."""

from typing import Any

import pytest
from pyspark.errors import PySparkException

import eventkit
from eventkit.conformance.clauses import proves


@proves("D8")
def test_tables(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Each equals the kit's answer."""
    emails = kit.queue("emails")
    emails.enqueue({"to": "ann"}, key="1", headers={"a": "b"})
    emails.enqueue({"to": "bob"}, delay=3600)
    emails.enqueue({"to": "eve"}, priority=1)
    [task] = emails.claim("worker")
    emails.fail(task, "no such address")
    kit.results.save("report", {"rows": 1})
    kit.schedules.add("nightly", "0 3 * * *", "emails", {"all": True})
    kit.stream("orders").publish_many([1, 2, 3])
    kit.stream("orders").save_offset("lake", kit.stream("orders").head() - 2)

    def table(name: str) -> list[Any]:
        return spark.read.format("eventkit").options(url=url, table=name).load().collect()

    tasks = {row.payload: row for row in table("tasks")}
    assert {row.state for row in tasks.values()} == {"ready", "scheduled", "dead"}
    assert tasks['{"to":"ann"}'].headers == {"a": "b"}
    assert tasks['{"to":"ann"}'].key == "1"
    [dead] = table("dead")
    assert (dead.reason, dead.error, dead.attempt, dead.priority) == ("failed", "no such address", 1, 1)
    assert dead.finished_at is not None
    [result] = table("results")
    assert (result.id, result.value) == ('"report"', '{"rows":1}')
    [schedule] = table("schedules")
    assert (schedule.name, schedule.when, schedule.paused, schedule.last_at) == ("nightly", "0 3 * * *", False, None)
    [consumer] = table("consumers")
    assert (consumer.topic, consumer.name, consumer.lag) == ("orders", "lake", 2)


@proves("D2", "D8")
def test_tables_are_no_streams(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """The error names the way to follow tasks."""
    stream = spark.readStream.format("eventkit").options(url=url, table="tasks").load()
    query = stream.writeStream.format("noop").start()
    with pytest.raises(PySparkException, match=r"table=tasks is not a stream: .* topic eventkit\.tasks"):
        query.awaitTermination()
