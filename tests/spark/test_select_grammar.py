"""A query of S3 Select is translated, or refused with S3's code, the place and a remedy, before Spark starts."""

import ast
import inspect
import re
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventkit.spark.s3select import SelectError
from eventkit.spark.s3select.files import Csv, Field, File
from eventkit.spark.s3select.grammar import parse
from eventkit.spark.s3select.kinds import PARTS
from eventkit.spark.s3select.tokens import KEYWORDS
from eventkit.spark.s3select.translation import Translated, translate

_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name.lower() not in KEYWORDS)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_FIELDS = _NAMES | _TEXTS.filter(bool).map(lambda text: '"' + text.replace('"', '""') + '"')
_STEPS = st.lists(_FIELDS.map(".{}".format) | st.integers(0, 99).map("[{}]".format), max_size=2).map("".join)
_LITERALS = st.one_of(
    st.integers(0, 10**25).map(str),
    st.builds("{}.{}".format, st.integers(0, 999), st.integers(0, 99)),
    _TEXTS.map(lambda text: "'" + text.replace("'", "''") + "'"),
    st.dates().map("`{}T`".format),
    st.sampled_from(["7e5", "true", "null", "missing"]),
)
_OPERATORS = ["+", "-", "*", "/", "%", "||", "=", "<>", "<", "<=", ">", ">=", "and", "or"]
_OTHERS = """
    (- {0}); (+ {0}); (not {0}); ({0} between {1} AND {2}); ({0} NOT between {1} AND {2}); ({0} in ({1}, {2}));
    ({0} NOT in ({1})); ({0} like {1}); ({0} NOT like {1} ESCAPE {2}); ({0} IS null); ({0} IS NOT missing);
    CASE WHEN {0} THEN {1} END; CASE {0} WHEN {1} THEN {2} ELSE {0} END; CAST({0} AS Int); CAST({0} AS STRING);
    CAST({0} AS timestamp); CAST({0} AS bool); CAST({0} AS float); CAST({0} AS decimal(10, 2)); lower({0}); upper({0});
    char_length({0}); coalesce({0}, {1}); substring({0}, {1}, {2}); date_diff(day, {0}, {1}); sum({0}); count({0});
    trim({0}); trim(leading {0} from {1}); trim(both from {0})"""
_PARTS = [f"({{0}} {operator} {{1}})" for operator in _OPERATORS]
_PARTS += [*map(str.strip, _OTHERS.split(";")), *(f"extract({part} FROM {{0}})" for part in PARTS)]
EXPRESSIONS = st.recursive(
    st.builds("{}{}".format, _FIELDS, _STEPS) | _LITERALS,
    lambda inner: st.builds(str.format, st.sampled_from(_PARTS), inner, inner, inner),
    max_leaves=8,
)
_COLUMNS = st.lists(EXPRESSIONS | st.builds('{} AS "{}"'.format, EXPRESSIONS, _NAMES), min_size=1, max_size=3)
QUERIES = st.builds(
    "select {} FROM S3Object{}{}{}{}".format,
    st.just("*") | _COLUMNS.map(", ".join),
    st.just("[*]") | _STEPS,
    st.just("") | _NAMES.map(" {}".format),
    st.just("") | EXPRESSIONS.map("\nWHERE {}".format),
    st.just("") | st.integers(0, 1000).map(" limit {}".format),
)
"""The text of queries with every part of the grammar."""

CSV = File(Path("people.csv"), "csv", columns=(Field("id"), Field("name"), Field("Name"), Field("unit price")))
BARE = File(Path("people.csv"), "csv", csv=Csv("none"), columns=(Field("_1"), Field("_2")))
JSON = File(Path("people.json"), "json")

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text("utf-8")
CODES = dict(re.findall(r"^\| `([A-Z]\w+)` \| (.+) \|$", PAGE, re.MULTILINE))

WORDS = (
    "select from where limit S3Object s . , * ( ) [ ] 'a' \"b\" `2020T` 1 2.5 = <> < and or not in like is null "
    "between case when then end cast as int sum count trim ; || + - -- /* ' \" ` \\ ? é"
)
PIECES = st.sampled_from(WORDS.split())

quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def refused(sql: str, file: File = CSV) -> SelectError:
    """Return the refusal of a query."""
    with pytest.raises(SelectError) as raised:
        translate(sql, parse(sql), file)
    return raised.value


def outcome(sql: str, *given: File) -> Translated | SelectError | None:
    """Return the last translation of a query over each of the files, or its first refusal."""
    made = None
    try:
        query = parse(sql)
        for file in given:
            made = translate(sql, query, file)
    except SelectError as error:
        return error
    return made


@quick
@given(st.text() | st.lists(PIECES, max_size=25).map(" ".join))
def test_any_text_is_a_query_or_is_refused(sql: str) -> None:
    """The refusal has a documented code, and a place inside the text."""
    error = outcome(sql, CSV, JSON)
    if isinstance(error, SelectError):
        assert error.code in CODES
        assert error.position is None or 0 <= error.position <= len(sql)


def check(sql: str, file: File) -> None:
    """Check that the parser takes a query, no other exception occurs, and no text of it leaves its quotes."""
    assert parse(sql)
    made = outcome(sql, file)
    if isinstance(made, SelectError):
        assert made.code in CODES
    else:
        assert made
        outside = re.sub(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`", "", made.sql, flags=re.DOTALL)
        assert not set(outside) & set("';$\"")
        assert outside.isascii()
        assert "${" not in made.sql


@quick
@given(QUERIES, st.sampled_from([CSV, BARE, JSON]))
def test_a_query_that_is_written_well_is_translated_or_refused(sql: str, file: File) -> None:
    """This holds for any names and texts."""
    check(sql, file)


@pytest.mark.parametrize("file", [CSV, JSON], ids=["csv", "json"])
def test_every_part_of_a_query_is_translated_or_refused(file: File) -> None:
    """This holds for values of every type."""
    values = ["id", "1", "2.5", "7e5", "'$a'", "`2020-01-01T`", "true", "null", "missing", "count(id)", "S3Object"]
    for part in _PARTS:
        for first, second in product(values, ["id", "2.5", "missing"]):
            check(f"SELECT {part.format(first, second, first)} FROM S3Object", file)


@quick
@given(QUERIES, st.data())
def test_a_query_with_a_slip_is_refused_or_another_query(sql: str, data: st.DataObject) -> None:
    """One character is lost, doubled or changed."""
    place = data.draw(st.integers(0, len(sql) - 1))
    slip = data.draw(st.sampled_from(["", sql[place] * 2, "'", "(", "]", "x", "9"]))
    error = outcome(sql[:place] + slip + sql[place + 1 :])
    assert error is None or (isinstance(error, SelectError) and error.code in CODES)


WRONG = [
    ("", "ParseEmptySelect", 0),
    ("SELECT", "ParseEmptySelect", 6),
    ("SELECT id", "ParseSelectMissingFrom", 9),
    ("SELEC id FROM S3Object", "ParseUnexpectedToken", 0),
    ("SELECT id name2 oops FROM S3Object", "ParseUnexpectedToken", 16),
    ("SELECT id FROM orders", "InvalidDataSource", 15),
    ("SELECT id, FROM S3Object", "ParseUnexpectedKeyword", 11),
    ("SELECT *, id FROM S3Object", "ParseAsteriskIsNotAloneInSelectList", 8),
    ("SELECT id FROM S3Object WHERE", "ParseExpectedExpression", 29),
    ("SELECT id FROM S3Object LIMIT many", "ParseExpectedNumber", 30),
    ("SELECT id AS 5 FROM S3Object", "ParseExpectedIdentForAlias", 13),
    ("SELECT id, name FROM S3Object GROUP BY id", "UnsupportedSqlStructure", 11),
    ("SELECT * FROM S3Object GROUP BY id", "UnsupportedSqlStructure", 14),
    ("SELECT COUNT(*) FROM S3Object GROUP BY SUM(id)", "UnsupportedSqlStructure", 39),
    ("SELECT id FROM S3Object GROUP BY id ORDER BY name", "UnsupportedSqlStructure", 45),
    ("SELECT id FROM S3Object GROUP BY id HAVING id > 1", "UnsupportedSqlStructure", 36),
    ("SELECT id FROM S3Object GROUP id", "ParseExpectedKeyword", 30),
    ("SELECT DISTINCT id FROM S3Object", "UnsupportedSqlStructure", 7),
    ("SELECT COUNT(DISTINCT id) FROM S3Object", "UnsupportedSqlStructure", 13),
    ("SELECT id FROM S3Object s JOIN S3Object t", "UnsupportedSqlStructure", 26),
    ("SELECT id FROM S3Object, S3Object", "UnsupportedSqlStructure", 23),
    ("SELECT id FROM (SELECT * FROM S3Object)", "UnsupportedSqlStructure", 15),
    ("SELECT id FROM S3Object WHERE id IN (SELECT 1)", "UnsupportedSqlStructure", 37),
    ("WITH x AS (SELECT 1) SELECT * FROM x", "UnsupportedSqlStructure", 0),
    ("SELECT id, COUNT(*) FROM S3Object", "UnsupportedSqlStructure", 7),
    ("SELECT SUM(MAX(id)) FROM S3Object", "UnsupportedSqlStructure", 11),
    ("SELECT id FROM S3Object WHERE SUM(id) > 1", "UnsupportedSqlStructure", 30),
    ("SELECT " + "(" * 80 + "1" + ")" * 80 + " FROM S3Object", "UnsupportedSyntax", None),
    ("SELECT " + "1+" * 300 + "1 FROM S3Object", "UnsupportedSyntax", None),
    ("SELECT " + " " * 300_000 + "1 FROM S3Object", "ExpressionTooLong", None),
    ("SELECT id FROM S3Object WHERE id == 1", "LexerInvalidOperator", 33),
    ("SELECT 'id FROM S3Object", "LexerInvalidLiteral", 7),
    ("SELECT 12ab FROM S3Object", "LexerInvalidLiteral", 9),
    ("SELECT # FROM S3Object", "LexerInvalidChar", 7),
    ("SELECT `yesterday` FROM S3Object", "LexerInvalidIONLiteral", 7),
    ("SELECT `2026-02-30T` FROM S3Object", "ValueParseFailure", 7),
    ("SELECT CONCAT(id, name) FROM S3Object", "UnsupportedFunction", 7),
    ("SELECT LOWER(id, name) FROM S3Object", "EvaluatorInvalidArguments", 7),
    ("SELECT LOWER(5) FROM S3Object", "IncorrectSqlFunctionArgumentType", 13),
    ("SELECT SUM(*) FROM S3Object", "ParseUnsupportedCallWithStar", 11),
    ("SELECT SUM(id, 1) FROM S3Object", "ParseNonUnaryAgregateFunctionCall", 13),
    ("SELECT CAST(id, INT) FROM S3Object", "ParseExpectedKeyword", 14),
    ("SELECT CAST id FROM S3Object", "ParseExpectedLeftParenAfterCast", 12),
    ("SELECT CAST(id AS VARCHAR) FROM S3Object", "ParseExpectedTypeName", 18),
    ("SELECT CAST(id AS DECIMAL(99)) FROM S3Object", "ParseInvalidTypeParam", 25),
    ("SELECT LOWER(id FROM S3Object", "ParseExpectedRightParenBuiltinFunctionCall", 16),
    ("SELECT EXTRACT(century FROM id) FROM S3Object", "ParseExpectedDatePart", 15),
    ("SELECT CASE 1 END FROM S3Object", "ParseExpectedWhenClause", 14),
    ("SELECT id FROM S3Object WHERE id IN 5", "ParseExpectedMember", 36),
    ("SELECT (id FROM S3Object", "ParseExpectedTokenType", 11),
    ("SELECT s.* FROM S3Object s", "ParseInvalidPathComponent", 9),
    ("SELECT s.from FROM S3Object s", "ParseUnexpectedKeyword", 9),
    ("SELECT 1 = 'a' FROM S3Object", "InvalidExpressionType", 11),
    ("SELECT id FROM S3Object WHERE 5", "InvalidExpressionType", 30),
    ("SELECT id LIKE 'a' ESCAPE 'ab' FROM S3Object", "LikeInvalidInputs", 26),
    ("SELECT TO_STRING(UTCNOW(), 'QQ') FROM S3Object", "EvaluatorInvalidTimestampFormatPattern", 27),
    ("SELECT id, id FROM S3Object", "AmbiguousFieldName", 11),
    ("SELECT NAME FROM S3Object", "AmbiguousFieldName", 7),
    ("SELECT nam FROM S3Object", "EvaluatorBindingDoesNotExist", 7),
    ("SELECT s.id.x FROM S3Object s", "EvaluatorBindingDoesNotExist", 7),
    ("SELECT _9 FROM S3Object", "InvalidColumnIndex", 7),
    ("SELECT id FROM S3Object[*].a", "InvalidKeyPath", 15),
]


@pytest.mark.parametrize(("sql", "code", "position"), WRONG)
def test_what_is_wrong_has_its_code_and_its_place(sql: str, code: str, position: int | None) -> None:
    """Codes are those of S3 Select."""
    error = refused(sql)
    assert error.code == code, error
    assert position is None or error.position == position


def test_a_name_wants_the_header() -> None:
    """Without a header, columns have numbers."""
    assert refused("SELECT id FROM S3Object", BARE).code == "MissingHeaders"
    assert translate("x", parse("SELECT _2 FROM S3Object"), BARE).names == ("_2",)


def test_the_message_shows_the_line_the_column_and_what_helps() -> None:
    """The message is one line for a query of any number of lines."""
    text = str(refused("SELECT id\nFROM S3Object\nWHERE nmae = 'Ann'"))
    assert text == ("EvaluatorBindingDoesNotExist at line 3, column 7: the file has no column nmae: did you mean name?")


@pytest.mark.parametrize(
    "sql", ["SELECT id FROM S3Object x", "select ID from s3object[*] as X", 'SELECT "id" FROM S3Object;']
)
def test_case_matters_only_in_quotes(sql: str) -> None:
    """This covers words, tables and columns."""
    assert "c0" in translate(sql, parse(sql), CSV).sql
    assert refused('SELECT "ID" FROM S3Object').code == "EvaluatorBindingDoesNotExist"


def test_every_code_is_on_the_page_and_given_somewhere() -> None:
    """The page has a meaning for each code in the source, and no code that is never raised."""
    package = Path(inspect.getfile(import_module("eventkit.spark.s3select"))).parent
    trees = [ast.parse(path.read_text("utf-8")) for path in package.glob("*.py")]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = {str(text) for text in texts if re.fullmatch(r"([A-Z][a-z]+|ION|CSV|JSON){2,}", str(text))}
    assert names - {"SelectError", "SparkSession", "DataFrame"} == set(CODES)
    assert all(CODES.values())


def test_every_code_of_the_parser_has_a_query() -> None:
    """The tokenizer and the parser can report each of their codes."""
    parsing = {code for code in CODES if code.startswith(("Lexer", "Parse"))}
    assert parsing - {code for _, code, _ in WRONG} == set()
