"""SQL over topics, with the archive and live events of each as one table."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from object_store import object_store
from pyspark.errors import PySparkException
from spark.streams import both

import eventkit
from eventkit import NewEvent
from eventkit.archive import archive
from eventkit.conformance import proves
from eventkit.spark import query, views
from eventkit.spark.pipeline import rollup
from eventkit.spark.session import reason_of
from eventkit.spark.views import needs
from eventkit.testing import advance


@pytest.fixture
def orders(kit: eventkit.EventKit, url: str, tmp_path: Path) -> Any:
    """Publish 300 events: a hundred of two hours ago in the archive only, the next in both, the others live."""
    stream = kit.stream("orders")
    for begin in (0, 100, 200):
        numbers = range(begin, begin + 100)
        stream.publish_many(
            NewEvent({"to": f"p{n % 4}", "n": n}, key=f"k{n % 3}", headers={"n": str(n)}) for n in numbers
        )
        if begin == 0:
            advance(kit, 7200)
        if begin < 200:
            archive(url, "orders", to=tmp_path / "lake [of] 100%", prune=begin == 0)
    return stream


def answer(spark: Any, url: str, sql: str) -> list[Any]:
    return [tuple(row) for row in query(spark, url, sql).collect()]


@proves("D17")
@both
def test_archive_and_live_are_one_table(spark: Any, url: str, orders: Any) -> None:
    """Each event is there once with all its columns, in the archive, live or both."""
    assert len(orders.read()) == 200
    rows = query(spark, url, "SELECT *, to_json(payload) AS text FROM orders ORDER BY offset").collect()
    assert [json.loads(row.text)["n"] for row in rows] == list(range(300))
    assert [(row.topic, row.key, row.headers) for row in rows] == [
        ("orders", f"k{n % 3}", {"n": str(n)}) for n in range(300)
    ]
    assert [(row.offset, row.created_at) for row in rows[100:]] == [
        (event.offset, event.created_at.replace(tzinfo=None)) for event in orders.read()
    ]


@proves("D17")
def test_one_event_of_another_type_ends_no_query(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """A path with a type is NULL where the value has another one; a strict cast names the expression."""
    kit.stream("orders").publish_many([{"total": 1.5, "n": [1]}, {"total": "none", "n": {"a": 1}}, "text", [1], None])
    frame = query(
        spark, url, "SELECT payload:total::double, payload:n[0]::int AS n, '::int' AS t FROM orders ORDER BY offset"
    )
    assert frame.columns == ["total", "n", "t"]
    assert [tuple(row) for row in frame.collect()] == [(1.5, 1, "::int"), *[(None, None, "::int")] * 4]
    typed = "sum(o.payload:total::decimal(9, 2)), count(o.payload::string)"
    total = f"SELECT {typed} FROM orders o WHERE payload:total::int > 0"
    assert [tuple(map(str, row)) for row in answer(spark, url, total)] == [("1.50", "1")]
    with pytest.raises(PySparkException) as strict:
        answer(spark, url, "SELECT sum(cast(payload:total AS double)) FROM orders")
    assert "Write payload:total::double, try_cast(payload:total AS double)" in reason_of(strict.value)


@pytest.mark.slow
@proves("D17", "D19")
@both
def test_an_archive_in_an_object_store(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """It is read without any jars of Spark's, whole or in part, and rolled up."""
    with object_store("bucket") as endpoint:
        host = endpoint.removeprefix("http://")
        place = f"s3://key:secret@bucket/lake?endpoint_override={host}&scheme=http&region=us-east-1"
        orders = kit.stream("orders")
        for numbers in (range(100), range(100, 200), range(200, 210)):
            orders.publish_many(NewEvent({"n": n}, key=f"k{n % 3}", headers={"n": str(n)}) for n in numbers)
            if len(numbers) == 100:
                archive(url, "orders", to=place, prune=True)
        rows = query(spark, url, "SELECT *, to_json(payload) AS text FROM orders ORDER BY offset").collect()
        assert [(row.text, row.topic, row.key, row.headers) for row in rows] == [
            (f'{{"n":{n}}}', "orders", f"k{n % 3}", {"n": str(n)}) for n in range(210)
        ]
        assert rows[0].created_at <= rows[100].created_at <= rows[209].created_at
        part = f"SELECT max(payload:n::int), count(key) FROM orders WHERE offset > {rows[150].offset} AND key = 'k1'"
        assert answer(spark, url, part) == [(208, 20)]
        assert [done.events for done in rollup(spark, url, ["orders"])] == [210]


@proves("D17")
def test_conditions_change_nothing_but_the_cost(spark: Any, url: str, orders: Any) -> None:
    """The answer is that of all rows for every bound that reaches the database or the manifest."""
    rows = query(spark, url, "SELECT offset, key, payload:n::int, created_at FROM orders ORDER BY offset").collect()
    first, middle = rows[0][0], rows[150]
    conditions = {
        f"offset > {rows[250][0]}": lambda row: row[0] > rows[250][0],
        f"{rows[90][0]} <= offset AND offset < {rows[210][0]}": lambda row: rows[90][0] <= row[0] < rows[210][0],
        f"offset < {first} OR offset > {rows[290][0]}": lambda row: row[0] > rows[290][0],
        "key = 'k1' AND key IN ('k1', 'k2')": lambda row: row[1] == "k1",
        f"created_at >= TIMESTAMP '{middle[3]}'": lambda row: row[3] >= middle[3],
        f"created_at < TIMESTAMP '{middle[3]}' AND key = 'k0'": lambda row: row[3] < middle[3] and row[1] == "k0",
        "created_at > now() - INTERVAL 1 HOUR": lambda row: row[3] > rows[99][3] + timedelta(hours=1),
        f"offset = (SELECT max(offset) FROM orders WHERE offset < {rows[9][0]})": lambda row: row[0] == rows[8][0],
        f"offset IN (SELECT offset + 0 FROM orders WHERE offset > {rows[297][0]})": lambda row: row[0] > rows[297][0],
    }
    for condition, expected in conditions.items():
        found = {row[0] for row in answer(spark, url, f"SELECT offset FROM orders WHERE {condition}")}
        assert found == {row[0] for row in rows if expected(row)}, condition
    joined = "SELECT count(*) FROM orders a JOIN orders b ON a.offset = b.offset"
    both = f"{joined} WHERE a.offset > {rows[280][0]} AND b.key = 'k1'"
    assert answer(spark, url, both) == [(len([row for row in rows[281:] if row[1] == "k1"]),)]
    limited = f"SELECT count(*) FROM (SELECT * FROM orders ORDER BY offset LIMIT 10) WHERE offset > {rows[4][0]}"
    assert answer(spark, url, limited) == [(5,)]


@proves("D18")
def test_a_bound_reaches_the_database(spark: Any) -> None:
    """The filter directly above a table in Spark's plan is pushed down, and only used columns are read."""
    columns = {"offset": "long", "key": "string", "payload": "string", "created_at": "timestamp"}
    schema = ", ".join(f"`0:{name}` {kind}" for name, kind in columns.items())
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)
    empty.toDF(*columns).createOrReplaceTempView("empty")

    def need(sql: str) -> Any:
        return needs(spark.sql(sql)._jdf.queryExecution().optimizedPlan().toJSON(), utc=True)[0]

    assert need("SELECT count(*) FROM empty WHERE `offset` IN (6, 7) OR offset = 9")[:3] == ({"offset"}, 0, None)
    assert need("SELECT count(*) FROM empty WHERE offset > 5 AND 9 >= offset")[:3] == ({"offset"}, 5, 9)
    assert need("SELECT payload FROM empty WHERE key IN ('a', 'b')").keys == ("a", "b")
    assert need("SELECT key FROM empty WHERE created_at BETWEEN '2026-01-01' AND now()").since == 1767225600000
    assert need("SELECT * FROM empty WHERE offset > 5 OR key = 'a'")[1:] == (0, None, None, ())
    assert (
        need("SELECT 1 FROM empty WHERE offset > 5 UNION ALL SELECT 2 FROM empty WHERE offset > 3 AND key = 'a'").after
        == 3
    )
    assert need("SELECT * FROM (SELECT * FROM empty LIMIT 3) WHERE offset > 5").after == 0
    assert need("SELECT * FROM empty WHERE offset = (SELECT max(offset) FROM empty) AND offset > 7").after == 0
    deep = " AND ".join(f"offset <> {number}" for number in range(300))
    assert need(f"SELECT key FROM empty WHERE offset > 5 AND {deep}").after == 5


def test_payloads_of_any_type_are_grouped(spark: Any, url: str, orders: Any) -> None:
    """They are grouped by their text, at every use of the path, and only there."""
    expected = [(f"p{n}", 75) for n in range(4)]
    for group in ("1", "payload:to", "all"):
        sql = f"SELECT payload:to, count(*) FROM orders WHERE 'payload:to' <> payload:to::string GROUP BY {group}"
        assert sorted(answer(spark, url, sql)) == expected
    assert query(spark, url, "SELECT payload:to, count(*) AS n FROM orders GROUP BY 1").columns == ["to", "n"]


def test_names_of_topics(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Any name works in backticks; in any case where only one topic matches."""
    for name in ("eventkit.tasks", "it's `so`", "Orders"):
        kit.stream(name).publish({"name": name})
    for name in ("`eventkit.tasks`", "`it's ``so```", "orders"):
        assert len(answer(spark, url, f"SELECT * FROM {name} WHERE topic <> ''")) == 1
    kit.stream("orders").publish_many([1, 2])
    try:
        assert [len(answer(spark, url, f"SELECT * FROM {name}")) for name in ("Orders", "orders")] == [1, 2]
        assert answer(spark, url, "SELECT count(*) FROM Orders a, orders b") == [(2,)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@proves("D18")
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM ordres", "there is no stream 'ordres': did you mean 'orders'?"),
        ("SELECT * FROM eventkit.tasks", "in backticks, as in `eventkit.tasks`"),
        ("SELECT keey FROM orders", "did you mean one of `key`"),
        ("SELECT count(*) FROM orders WHERE payload:n > 5", "as in payload:total::double"),
        ("SELEC 1", "Syntax error"),
        ("DROP TABLE orders", "must begin with SELECT or WITH, and cannot change data"),
        ("INSERT INTO orders SELECT 1", "must begin with SELECT or WITH, and cannot change data"),
        ("SELECT 1; SELECT 2", "Syntax error"),
        ("", "must begin with SELECT"),
    ],
)
def test_an_invalid_query_is_an_error_of_one_line(
    spark: Any, kit: eventkit.EventKit, url: str, sql: str, said: str
) -> None:
    """The line names the remedy, before anything is read or changed."""
    kit.stream("orders").publish(1)
    with pytest.raises(ValueError, match="^[^\n]+$") as refused:
        query(spark, url, sql)
    assert said in str(refused.value)


def test_views_of_a_session(spark: Any, url: str, orders: Any) -> None:
    """Each topic is a view as of the call; the next call includes new events."""
    views(spark, url)
    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 300
    orders.publish(1)
    assert answer(spark, url, "SELECT count(*) FROM Orders") == [(301,)]
    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 300
    views(spark, url, ["orders"])
    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 301
    spark.catalog.dropTempView("orders")
