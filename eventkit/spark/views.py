"""SQL over topics: each is a view with all of its events, wherever they are, as of the query.

A view is made when a query names it.  Spark is asked twice: first over tables with nothing in them, to learn which
topics the query names and what it needs of each (`needs`); then over just that.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..kit import backend_of
from ..operations.extract import ListTopics
from .complaints import conditions, is_sparks, told
from .events import TYPES, events
from .needs import EVERYTHING, needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PAYLOAD = "try_parse_json(payload) AS payload"
_ASKED = "SELECT * FROM (\n"
"""Before a query that Spark is asked about: nothing that changes anything can stand there."""

_PATH = re.compile(r"[\w.`]+:[\w.\[\]'\"`]+")
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/"
"""What is no SQL: texts and comments."""

_TYPED = re.compile(
    rf"(?s:{_QUOTED})"
    r"|(?<![\w.`:])((?:[\w.]|`[^`]*`)+(?::(?:[\w.]|`[^`]*`|\[\d+\]|\['[^']*'\]|\[\"[^\"]*\"\])+)?)"
    r"\s*::\s*(\w+(?:\s*\([\d\s,]*\)|<[\w\s,<>:]*>)?)"
)
"""A column, or a path in one, and the type that it is given."""


def query(spark: "SparkSession", url: str, sql: str) -> "DataFrame":
    """The answer to a query over the topics of the database at *url*, as of now.

    It is a table like any other of Spark's, and stays as it is: a new call sees what has come since.  What cannot be
    answered is a `ValueError`, before anything is read.
    """
    sql = _lenient(sql.strip().rstrip(";"))
    with closing(backend_of(url).connect(url, create=False)) as connection:
        topics = connection.execute(ListTopics())
        _tell_case(spark, topics)
        named: dict[str, str] = {}
        older: dict[str, DataFrame] = {}
        there = _viewed(spark, [topic for topic in topics if topic.lower() in sql.lower()])
        if not _is_remote(spark):
            older = _put_away(spark, there)
        try:
            with _in_silence():
                frame, sql = _understood(spark, sql, topics, named)
            if _is_remote(spark):
                tables = {topic: topic for topic in there} | named
                return _whole(
                    spark, sql, {name: events(spark, connection, url, topic) for name, topic in tables.items()}
                )
            needed = _needs(spark, frame)
            for number, (name, topic) in enumerate(named.items()):
                found = events(spark, connection, url, topic, needed.get(number, EVERYTHING))
                _show(spark, name, found)
            return spark.sql(sql)
        finally:
            for name in named:
                spark.catalog.dropTempView(name)
            for name, found in older.items():
                found.createOrReplaceTempView(_quoted(name))


def views(spark: "SparkSession", url: str, topics: Iterable[str] | None = None) -> None:
    """Make each topic, or each of some, a view of *spark* with its events as of now; again, to see what has come since.

    The view is called like the topic, in backticks where that is no identifier.
    """
    with closing(backend_of(url).connect(url, create=False)) as connection:
        there = connection.execute(ListTopics())
        _tell_case(spark, there)
        for topic in there if topics is None else [find_topic(topic, there) for topic in topics]:
            _show(spark, topic, events(spark, connection, url, topic))


def _is_remote(spark: "SparkSession") -> bool:
    """Whether it is a session of Spark Connect."""
    return not hasattr(spark, "_jsparkSession")


def _whole(spark: "SparkSession", sql: str, tables: "dict[str, DataFrame]") -> "DataFrame":
    """A query with its tables in it: by Spark Connect a view is looked up when the answer is, and not before."""
    if not tables:
        return spark.sql(sql)
    frames: dict[str, Any] = {f"table{number}": _shown(found) for number, found in enumerate(tables.values())}
    quoted = zip(map(_quoted, tables), frames, strict=True)
    known = ", ".join(f"{_braced(name)} AS (SELECT * FROM {{{place}}})" for name, place in quoted)
    body = f"SELECT * FROM (\n{sql}\n)" if re.match(r"(?is)(\s|--[^\n]*\n|/\*.*?\*/)*with\b", sql) else sql
    return spark.sql(f"WITH {known}\n{_braced(body)}", **frames)


def _braced(text: str) -> str:
    """As it stands in what Spark puts tables into."""
    return text.replace("{", "{{").replace("}", "}}")


def _lenient(sql: str) -> str:
    """The query with ``payload:total::double`` as a try_cast: NULL for a value of another type, instead of an error."""

    def lenient(found: "re.Match[str]") -> str:
        of_payload = found[1] and (":" in found[1] or found[1].lower().endswith("payload"))
        return f"try_cast({found[1]} AS {found[2]})" if of_payload else found[0]

    return _TYPED.sub(lenient, sql)


def _viewed(spark: "SparkSession", names: list[str]) -> list[str]:
    """Those of which there are views."""
    return [name for name in names if spark.catalog.tableExists(_quoted(name))]


def _put_away(spark: "SparkSession", names: list[str]) -> "dict[str, DataFrame]":
    """Views, of an older moment, which are in the way of new ones."""
    older = {name: spark.table(_quoted(name)) for name in names}
    for name in older:
        spark.catalog.dropTempView(name)
    return older


def _understood(spark: "SparkSession", sql: str, topics: list[str], named: dict[str, str]) -> "tuple[DataFrame, str]":
    """What Spark makes of a query over empty tables, and the query; *named* gets the views that it needs."""
    while True:
        try:
            return spark.sql(f"{_ASKED}{sql}\n)"), sql
        except Exception as error:
            if not is_sparks(error):
                raise
            condition = next(iter(conditions(error)), "")
            if condition == "TABLE_OR_VIEW_NOT_FOUND":
                name = _name(error, topics)
                named[name] = find_topic(name, topics)
                _show_nothing(spark, name, len(named) - 1)
            elif condition == "GROUP_EXPRESSION_TYPE_IS_NOT_ORDERABLE" and (better := _grouped_by_text(sql, error)):
                sql = better
            else:
                raise ValueError(_explained(sql, condition, error)) from error


@contextmanager
def _in_silence() -> Iterator[None]:
    """Have Spark only raise what it would also write at length."""
    logger = logging.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _needs(spark: "SparkSession", frame: "DataFrame") -> Any:
    """What the query needs of each view, by its number; nothing is known where Spark is elsewhere."""
    java: Any = getattr(frame, "_jdf", None)
    if java is None:
        return {}
    plan = java.queryExecution().optimizedPlan().toJSON()
    return needs(plan, utc=spark.conf.get("spark.sql.session.timeZone") in ("UTC", "Etc/UTC"))


def _shown(found: "DataFrame") -> "DataFrame":
    return found.selectExpr(*(_PAYLOAD if column == "payload" else column for column in TYPES))


def _show(spark: "SparkSession", name: str, found: "DataFrame") -> None:
    _shown(found).createOrReplaceTempView(_quoted(name))


def _show_nothing(spark: "SparkSession", name: str, number: int) -> None:
    """A view of nothing, whose columns say in Spark's plan which view they are of."""
    schema = ", ".join(f"`{number}:{column}` {kind}" for column, kind in TYPES.items())
    nothing: Any = [] if _is_remote(spark) else spark.sparkContext.emptyRDD()
    empty = spark.createDataFrame(nothing, schema)
    _show(spark, name, empty.selectExpr(*(f"`{number}:{column}` AS {column}" for column in TYPES)))


def _tell_case(spark: "SparkSession", topics: list[str]) -> None:
    """Where two topics differ in nothing but case, have Spark see that."""
    if len({topic.lower() for topic in topics}) < len(topics):
        spark.conf.set("spark.sql.caseSensitive", "true")


def _name(error: Any, topics: list[str]) -> str:
    """The name of the view that Spark has not found."""
    parts = [
        part.replace("``", "`")
        for part in re.findall(r"`((?:[^`]|``)*)`", error.getMessageParameters()["relationName"])
    ]
    if len(parts) == 1:
        return str(parts[0])
    whole = ".".join(parts)
    raise ValueError(
        f"a topic whose name is no identifier stands in backticks: {_quoted(whole)}"
        if whole in topics
        else _unknown(whole, topics)
    )


def find_topic(name: str, topics: list[str]) -> str:
    """The one of the *topics* that has this name, in whatever case where only one is meant; or `ValueError`."""
    if name in topics:
        return name
    alike = [topic for topic in topics if topic.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise ValueError(_unknown(name, topics))


def _unknown(name: str, topics: list[str]) -> str:
    close = get_close_matches(name, topics, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(topics[:10]) or 'none yet'}"
    return f"there is no topic {name!r}: {hint}"


def _grouped_by_text(sql: str, error: Any) -> str | None:
    """The query with the path that Spark will not group by, because that may be of any type, as its text."""
    path = next((context.fragment() for context in error.getQueryContext()), "")
    if not _PATH.fullmatch(path):
        return None
    pattern = rf"(?s:{_QUOTED})|(?<![\w.`])({re.escape(path)})(?![\w.\[:'\"`])"
    better = re.sub(pattern, lambda found: f"{found[0]}::string" if found[1] else found[0], sql)
    return None if better == sql else better


def _explained(sql: str, condition: str, error: Any) -> str:
    """Why Spark does not answer, and what helps."""
    text = told(error)
    if condition in ("UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY", "REQUIRES_SINGLE_PART_NAMESPACE"):
        return f"{text}: a topic whose name is no identifier stands in backticks, as in `eventkit.tasks`"
    if "VARIANT" in text:
        return f"{text} Say of what type it is, as in payload:total::double or payload:to::string"
    if condition == "PARSE_SYNTAX_ERROR" and not re.match(r"(?i)\W*(select|with|from|values|table)\b", sql):
        return f"{text} A query begins with SELECT or WITH, and changes nothing"
    with suppress(AttributeError):
        if proposal := (error.getMessageParameters() or {}).get("proposal"):
            return f"{text.partition('. ')[0]}: did you mean one of {proposal}?"
    return text


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
