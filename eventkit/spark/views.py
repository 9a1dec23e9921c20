"""Views of a database's streams, with archived and stored events in one table, and queries that read only their part.

Spark pushes conditions towards the tables as far as its rules allow, and selects the columns that are used.  A
condition directly above a table in the optimized plan holds for every row that can matter, and only such conditions
count here (`needs`).  An unrecognised plan needs everything; and Spark applies its conditions again in any case.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from ..archive.files import Location
from ..kit import backend_of
from ..operations.bulk import ArchiveFile, ReadArchive
from ..operations.stream import FindOffset
from ..operations.tables import ListTopics, ReadExtent
from ..protocols import Connection
from .options import DISORDER
from .session import conditions, is_remote, is_sparks, quoted, reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TYPES = {
    "offset": "BIGINT",
    "topic": "STRING",
    "key": "STRING",
    "payload": "STRING",
    "headers": "MAP<STRING, STRING>",
    "created_at": "TIMESTAMP",
}
"""The columns of a stream, as they are stored."""


class Need(NamedTuple):
    """Some columns of the events after *after* up to *last*, from a time in milliseconds on, of some keys."""

    columns: frozenset[str] = frozenset(TYPES)
    after: int = 0
    last: int | None = None
    since: int | None = None
    keys: tuple[str, ...] = ()

    def narrowed(self, column: str, operator: str, values: list[Any]) -> "Need":
        """Return the need with one more condition."""
        if column == "key" and operator in ("=", "in"):
            return self._replace(keys=tuple(values))
        low, high = operator in (">", ">=", "="), operator in ("<", "<=", "=")
        if column == "offset":
            offset = values[0]
            after = max(self.after, offset if operator == ">" else offset - 1) if low else self.after
            bound = offset - (operator == "<")
            last = min(bound, bound if self.last is None else self.last) if high else self.last
            return self._replace(after=after, last=last)
        if column == "created_at" and low:
            # An upper bound is left to Spark: it may come from now(), which is later when the query runs.
            since = (values[0] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
            return self._replace(since=max(self.since or 0, since))
        return self

    def joined(self, other: "Need") -> "Need":
        """Return what both need together."""
        return Need(
            self.columns | other.columns,
            min(self.after, other.after),
            None if self.last is None or other.last is None else max(self.last, other.last),
            None if self.since is None or other.since is None else min(self.since, other.since),
            tuple(dict.fromkeys(self.keys + other.keys)) if self.keys and other.keys else (),
        )


EVERYTHING = Need()

ATTEMPTS = 5
"""Attempts at a query whose events are archived and pruned before it has read them."""


def events(
    spark: "SparkSession", connection: Connection, url: str, stream: str, need: Need = EVERYTHING
) -> "DataFrame":
    """Return the events of *stream*, or a subset that contains all that *need* names; other columns are NULL."""
    # In this order: events that are pruned by now were archived before, or are lost.
    extent = connection.execute(ReadExtent(stream))
    archive = connection.execute(ReadArchive(stream))
    covered = max(archive.covered if archive else 0, extent.pruned_to)
    last = extent.head if need.last is None else min(need.last, extent.head)
    read = [name for name in TYPES if name in need.columns and name != "topic"] or ["offset"]
    schema = ", ".join(f"{name} {TYPES[name]}" for name in read)

    begin = max(covered, need.after)
    if need.since is not None:
        begin = max(begin, connection.execute(FindOffset(stream, need.since - DISORDER)))
    options = {"url": url, "topic": stream, "startingOffsets": str(begin + 1), "endingOffsets": str(last + 1)}
    if need.keys:
        options["key"] = json.dumps(need.keys)
    found = spark.read.format("eventkit").options(**options).schema(schema).load()
    if archive and (files := [file.path for file in archive.files if _needed(file, need)]):
        found = _archived(spark, Location(archive.location), files, schema).unionAll(found)
    return found.selectExpr(*(_column(name, kind, read, stream) for name, kind in TYPES.items()))


def _archived(spark: "SparkSession", place: Location, files: list[str], schema: str) -> "DataFrame":
    """Return the events in files of an archive; those of an object store through Arrow, without more jars for Spark."""
    if place.is_remote:
        from .source import StoredSource

        spark.dataSource.register(StoredSource)
        options = {"location": place.name, "files": json.dumps(files)}
        return spark.read.format(StoredSource.name()).options(**options).schema(schema).load()
    # Spark takes names of folders for columns, and some characters for patterns, unless these options are set.
    reader = spark.read.schema(schema).option("recursiveFileLookup", True).option("__globPaths__", "false")
    return reader.parquet(*map(place.uri, files))


def overtaken(error: BaseException) -> bool:
    """Return whether a query has failed because its events were archived and pruned meanwhile."""
    return "were to be read and are pruned" in reason_of(error)


def _needed(file: ArchiveFile, need: Need) -> bool:
    return (
        file.last > need.after
        and (need.last is None or file.first <= need.last)
        and (need.since is None or file.newest >= need.since)
    )


def _column(name: str, kind: str, read: list[str], stream: str) -> str:
    if name == "topic":
        text = stream.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{text}' AS topic"
    return name if name in read else f"CAST(NULL AS {kind}) AS {name}"


_PAYLOAD = "try_parse_json(payload) AS payload"
_ASKED = "SELECT * FROM (\n"
"""The prefix of a query for analysis: a statement that changes data is a syntax error after it."""

_PATH = re.compile(r"[\w.`]+:[\w.\[\]'\"`]+")
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/"
"""Texts and comments, which are not searched."""

_TYPED = re.compile(
    rf"(?s:{_QUOTED})"
    r"|(?<![\w.`:])((?:[\w.]|`[^`]*`)+(?::(?:[\w.]|`[^`]*`|\[\d+\]|\['[^']*'\]|\[\"[^\"]*\"\])+)?)"
    r"\s*::\s*(\w+(?:\s*\([\d\s,]*\)|<[\w\s,<>:]*>)?)"
)
"""A column, or a path in one, with the type of its cast."""


def query(spark: "SparkSession", url: str, sql: str) -> "DataFrame":
    """Return the result of a query over the streams of the database at *url*, as of now.

    It is a lazy DataFrame and does not change: a new call sees later events.  A query that cannot be answered raises
    `ValueError` before anything is read.
    """
    sql = _lenient(sql.strip().rstrip(";"))
    with closing(backend_of(url).connect(url, create=False)) as connection:
        streams = connection.execute(ListTopics())
        _set_case(spark, streams)
        named: dict[str, str] = {}
        in_sql = [stream for stream in streams if stream.lower() in sql.lower()]
        there = [stream for stream in in_sql if spark.catalog.tableExists(quoted(stream))]
        # Views of an earlier call are in the way of new ones.
        older = {} if is_remote(spark) else {name: spark.table(quoted(name)) for name in there}
        for name in older:
            spark.catalog.dropTempView(name)
        try:
            with _without_logs():
                frame, sql = _analyzed(spark, sql, streams, named)
            if is_remote(spark):
                tables = {stream: stream for stream in there} | named
                whole = {name: events(spark, connection, url, stream) for name, stream in tables.items()}
                return _whole(spark, sql, whole)
            java: Any = frame._jdf
            plan = java.queryExecution().optimizedPlan().toJSON()
            needed = needs(plan, utc=spark.conf.get("spark.sql.session.timeZone") in ("UTC", "Etc/UTC"))
            for number, (name, stream) in enumerate(named.items()):
                found = events(spark, connection, url, stream, needed.get(number, EVERYTHING))
                _show(spark, name, found)
            return spark.sql(sql)
        finally:
            for name in named:
                spark.catalog.dropTempView(name)
            for name, found in older.items():
                found.createOrReplaceTempView(quoted(name))


def views(spark: "SparkSession", url: str, streams: Iterable[str] | None = None) -> None:
    """Create or replace a view of *spark* for each stream, or for each of *streams*, with its events as of now.

    The view has the name of the stream, in backticks where that is not an identifier.
    """
    with closing(backend_of(url).connect(url, create=False)) as connection:
        there = connection.execute(ListTopics())
        _set_case(spark, there)
        for stream in there if streams is None else [find_stream(stream, there) for stream in streams]:
            _show(spark, stream, events(spark, connection, url, stream))


def _whole(spark: "SparkSession", sql: str, tables: "dict[str, DataFrame]") -> "DataFrame":
    """Return a query that contains its tables: Spark Connect looks up a view only when the result is read."""
    if not tables:
        return spark.sql(sql)
    frames: dict[str, Any] = {f"table{number}": _shown(found) for number, found in enumerate(tables.values())}
    # Braces are doubled, because this is a template of Spark.
    body, *names = (text.replace("{", "{{").replace("}", "}}") for text in (sql, *map(quoted, tables)))
    known = ", ".join(f"{name} AS (SELECT * FROM {{{place}}})" for name, place in zip(names, frames, strict=True))
    if re.match(r"(?is)(\s|--[^\n]*\n|/\*.*?\*/)*with\b", sql):
        body = f"SELECT * FROM (\n{body}\n)"
    return spark.sql(f"WITH {known}\n{body}", **frames)


def _lenient(sql: str) -> str:
    """Return the query with ``payload:total::double`` as a try_cast, which is NULL for a value of another type."""

    def lenient(found: "re.Match[str]") -> str:
        of_payload = found[1] and (":" in found[1] or found[1].lower().endswith("payload"))
        return f"try_cast({found[1]} AS {found[2]})" if of_payload else found[0]

    return _TYPED.sub(lenient, sql)


def _analyzed(spark: "SparkSession", sql: str, streams: list[str], named: dict[str, str]) -> "tuple[DataFrame, str]":
    """Return Spark's analysis of a query over empty tables, and the query; add the views that it needs to *named*."""
    while True:
        try:
            return spark.sql(f"{_ASKED}{sql}\n)"), sql
        except Exception as error:
            if not is_sparks(error):
                raise
            condition = next(iter(conditions(error)), "")
            if condition == "TABLE_OR_VIEW_NOT_FOUND":
                name = _name(error, streams)
                named[name] = find_stream(name, streams)
                _show_nothing(spark, name, len(named) - 1)
            elif condition == "GROUP_EXPRESSION_TYPE_IS_NOT_ORDERABLE" and (better := _grouped_by_text(sql, error)):
                sql = better
            else:
                raise ValueError(_explained(sql, condition, error)) from error


@contextmanager
def _without_logs() -> Iterator[None]:
    """Stop Spark from also logging the errors that it raises."""
    logger = logging.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _shown(found: "DataFrame") -> "DataFrame":
    return found.selectExpr(*(_PAYLOAD if column == "payload" else column for column in TYPES))


def _show(spark: "SparkSession", name: str, found: "DataFrame") -> None:
    _shown(found).createOrReplaceTempView(quoted(name))


def _show_nothing(spark: "SparkSession", name: str, number: int) -> None:
    """Create an empty view, whose columns identify it in Spark's plan."""
    schema = ", ".join(f"`{number}:{column}` {kind}" for column, kind in TYPES.items())
    nothing: Any = [] if is_remote(spark) else spark.sparkContext.emptyRDD()
    empty = spark.createDataFrame(nothing, schema)
    _show(spark, name, empty.selectExpr(*(f"`{number}:{column}` AS {column}" for column in TYPES)))


def _set_case(spark: "SparkSession", streams: list[str]) -> None:
    """Make Spark case-sensitive if two streams differ only in case."""
    if len({stream.lower() for stream in streams}) < len(streams):
        spark.conf.set("spark.sql.caseSensitive", "true")


def _name(error: Any, streams: list[str]) -> str:
    """Return the name of the view that Spark has not found."""
    parts = [
        part.replace("``", "`")
        for part in re.findall(r"`((?:[^`]|``)*)`", error.getMessageParameters()["relationName"])
    ]
    if len(parts) == 1:
        return str(parts[0])
    whole = ".".join(parts)
    raise ValueError(
        f"write the name of a stream that is not an identifier in backticks: {quoted(whole)}"
        if whole in streams
        else _unknown(whole, streams)
    )


def find_stream(name: str, streams: list[str]) -> str:
    """Return the one of *streams* with this name, in any case if that is unique; otherwise raise `ValueError`."""
    if name in streams:
        return name
    alike = [stream for stream in streams if stream.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise ValueError(_unknown(name, streams))


def _unknown(name: str, streams: list[str]) -> str:
    close = get_close_matches(name, streams, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(streams[:10]) or 'none yet'}"
    return f"there is no stream {name!r}: {hint}"


def _grouped_by_text(sql: str, error: Any) -> str | None:
    """Return the query with the path that Spark cannot group by, because it may be of any type, cast to text."""
    path = next((context.fragment() for context in error.getQueryContext()), "")
    if not _PATH.fullmatch(path):
        return None
    pattern = rf"(?s:{_QUOTED})|(?<![\w.`])({re.escape(path)})(?![\w.\[:'\"`])"
    better = re.sub(pattern, lambda found: f"{found[0]}::string" if found[1] else found[0], sql)
    return None if better == sql else better


def _explained(sql: str, condition: str, error: Any) -> str:
    """Return the reason why Spark does not answer, with the remedy."""
    text = reason_of(error)
    if condition in ("UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY", "REQUIRES_SINGLE_PART_NAMESPACE"):
        return f"{text}: write the name of a stream that is not an identifier in backticks, as in `eventkit.tasks`"
    if "VARIANT" in text:
        return f"{text} Cast it to a type, as in payload:total::double or payload:to::string"
    if condition == "PARSE_SYNTAX_ERROR" and not re.match(r"(?i)\W*(select|with|from|values|table)\b", sql):
        return f"{text} A query must begin with SELECT or WITH, and cannot change data"
    with suppress(AttributeError):
        if proposal := (error.getMessageParameters() or {}).get("proposal"):
            return f"{text.partition('. ')[0]}: did you mean one of {proposal}?"
    return text


_LITERALS: dict[str, Callable[[str], Any]] = {
    "long": int,
    "string": str,
    "timestamp": lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
}
_OPERATORS = {"GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<=", "EqualTo": "="}
_TURNED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}
_NAME = re.compile(r"(\d+):(\w+)")


class Node(NamedTuple):
    """A node of a plan or of an expression."""

    kind: str
    fields: dict[str, Any]
    children: list["Node"]


def needs(plan: str, utc: bool) -> dict[int, Need]:
    """Return what an optimized *plan*, as Spark's JSON, needs of each table whose columns are called ``number:name``.

    Times in it are readable if the session's time zone is *utc*.
    """
    found: dict[int, Need] = {}
    for one in _inside(json.loads(plan)):
        if one and isinstance(one, list) and isinstance(one[0], dict) and "num-children" in one[0]:
            for number, need in _leaves(_tree(one), utc):
                found[number] = need.joined(found[number]) if number in found else need
    return found


def _inside(value: Any) -> Iterator[Any]:
    """Yield every list and every dictionary in *value*, which may be nested to any depth."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            yield value
            waiting += value.values() if isinstance(value, dict) else value


def _tree(nodes: list[dict[str, Any]]) -> Node:
    """Return the tree of the nodes, which are listed in preorder."""
    made: list[Node] = []
    for fields in reversed(nodes):
        children = [made.pop() for _ in range(fields["num-children"])]
        made.append(Node(fields["class"].rpartition(".")[2], fields, children))
    return made.pop()


def _leaves(root: Node, utc: bool) -> Iterator[tuple[int, Need]]:
    """Yield the tables in a plan, each with the need that the nodes directly above it show."""
    waiting: list[tuple[Node, list[Node]]] = [(root, [])]
    while waiting:
        node, above = waiting.pop()
        waiting += [(child, [node, *above[:1]]) for child in node.children]
        if node.kind == "LogicalRDD" and (names := list(_references(node.fields["output"]))):
            filters = above[:1] if above and above[0].kind == "Filter" else []
            projects = [one for one in above[len(filters) :][:1] if one.kind == "Project"]
            need = EVERYTHING
            for conjunct in (one for found in filters for one in _conjuncts(_tree(found.fields["condition"]))):
                need = _narrowed(need, conjunct, utc)
            if projects:
                used = _references([one.fields for one in (*filters, *projects)])
                need = need._replace(columns=frozenset(column for _, column in used))
            yield names[0][0], need


def _references(value: Any) -> Iterator[tuple[int, str]]:
    """Yield the columns ``number:name`` anywhere in *value*."""
    for one in _inside(value):
        if isinstance(one, dict) and (match := _NAME.fullmatch(str(one.get("name", "")))):
            yield int(match[1]), match[2]


def _conjuncts(condition: Node) -> Iterator[Node]:
    waiting = [condition]
    while waiting:
        node = waiting.pop()
        if node.kind == "And":
            waiting += node.children
        else:
            yield node


def _narrowed(need: Need, conjunct: Node, utc: bool) -> Need:
    """Return *need* with one more condition, if that compares a column with constants."""
    if conjunct.kind not in (*_OPERATORS, "In"):
        return need
    operator = _OPERATORS.get(conjunct.kind, "in")
    column, *others = conjunct.children
    if operator != "in" and column.kind == "Literal":
        column, others, operator = others[0], [column], _TURNED[operator]
    match = _NAME.fullmatch(column.fields["name"]) if column.kind == "AttributeReference" else None
    values = [_constant(node, utc) for node in others]
    if match is None or not values or None in values:
        return need
    return need.narrowed(match[2], operator, values)


def _constant(node: Node, utc: bool) -> Any:
    """Return the value of a literal; None for an unsupported type."""
    kind, value = node.fields.get("dataType"), node.fields.get("value")
    if node.kind != "Literal" or kind not in _LITERALS or value is None or (kind == "timestamp" and not utc):
        return None
    try:
        return _LITERALS[kind](value)
    except ValueError:
        return None
