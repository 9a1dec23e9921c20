"""Answers of `eventkit select` for each kind of file."""

import bz2
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from eventkit.spark.output import typed, write
from eventkit.spark.s3select import SelectError, files, prepare, rows, select

PEOPLE = 'id,name,price,born\n1,Ann,1.50,1990-01-31\n2,"B, ""o""\nb",,2001-05-06T07:08Z\n30,Čeněk,20,2020T\n'
ORDERS = (
    '{"id": 1, "to": "ann", "lines": [{"sku": "a", "n": 2}, {"sku": "b"}], "note": null}\n'
    "\n"
    '{"ID": 9007199254740993, "to": "bob", "lines": []}\n'
    '{"id": "3", "to": {"name": "cy", "From": 7}}\n'
)
RULES = '{"rules": [{"id": "1"},\n {"expr": "y"}]}{"rules": [{"id": "2", "expr": "z"}]}\n[{"a": 1}]'


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of each kind."""
    import pyarrow
    from pyarrow import parquet

    folder = tmp_path_factory.mktemp("select [*] {a}")
    (folder / "people.csv").write_text(PEOPLE, "utf-8")
    (folder / "people.dat").write_bytes(gzip.compress(PEOPLE.encode()))
    (folder / "_people.csv.bz2").write_bytes(bz2.compress(PEOPLE.encode()))
    (folder / "orders.jsonl").write_text(ORDERS, "utf-8")
    (folder / "rules.json").write_text(RULES, "utf-8")
    lines = [{"id": 1, "price": Decimal("2.50"), "who": {"Name": "ann"}, "tags": ["x", "y"]}, {"id": 2}]
    parquet.write_table(pyarrow.Table.from_pylist(lines), folder / "lines.parquet")
    return folder


def selected(spark: Any, folder: Path, sql: str, path: Path, **said: Any) -> list[Any]:
    """Return the rows as parsed objects."""
    query = prepare(sql, files.detect(path, **said))
    with rows(spark, query) as (frame, _):
        write(frame, "json", folder / "out", optional=query.optional, whole=query.whole)
    return [json.loads(line) for line in (folder / "out").read_text("utf-8").splitlines()]


CSV_ANSWERS: dict[str, list[Any]] = {
    "SELECT s.name FROM S3Object s WHERE s.id > 3": [{"name": "Čeněk"}],
    "SELECT _1, name FROM S3Object LIMIT 2": [{"_1": "1", "name": "Ann"}, {"_1": "2", "name": 'B, "o"\nb'}],
    "SELECT name FROM S3Object WHERE price = '' AND price IS NOT NULL": [{"name": 'B, "o"\nb'}],
    "SELECT id FROM S3Object WHERE name LIKE '%o%' OR name LIKE '_nn'": [{"id": "1"}, {"id": "2"}],
    "SELECT id FROM S3Object WHERE name LIKE 'A!_n' ESCAPE '!' OR id IN (2, 'x')": [{"id": "2"}],
    "SELECT id FROM S3Object WHERE id NOT BETWEEN 1 AND 2.5": [{"id": "30"}],
    "SELECT COUNT(*) n, SUM(CAST(id AS INT)), AVG(id), MAX(id), MIN(CAST(id AS FLOAT)) FROM S3Object": [
        {"n": 3, "_2": 33, "_3": 11, "_4": 30, "_5": 1.0}
    ],
    "SELECT SUM(price) FROM S3Object WHERE price <> ''": [{"_1": 21.5}],
    "SELECT CASE id WHEN 1 THEN 'one' WHEN 2 THEN 'two' END x FROM S3Object": [{"x": "one"}, {"x": "two"}, {"x": None}],
    "SELECT CASE WHEN id > 1 THEN UPPER(name) ELSE name END x FROM S3Object LIMIT 1": [{"x": "Ann"}],
    "SELECT COALESCE(NULLIF(price, ''), 'none') x FROM S3Object": [{"x": "1.50"}, {"x": "none"}, {"x": "20"}],
    "SELECT CHAR_LENGTH(name) a, SUBSTRING(name, 2, 1) b, SUBSTRING(name FROM -1 FOR 3) c, SUBSTRING(name, 0) d, "
    "TRIM(LEADING 'A' FROM name) e, LOWER(name) || '!' f FROM S3Object LIMIT 1": [
        {"a": 3, "b": "n", "c": "A", "d": "Ann", "e": "nn", "f": "ann!"}
    ],
    "SELECT EXTRACT(YEAR FROM CAST(born AS TIMESTAMP)) y, DATE_DIFF(day, TO_TIMESTAMP(born), `2020-01-03T`) d, "
    "TO_STRING(DATE_ADD(month, 1, TO_TIMESTAMP(born)), 'y-MM-dd HH:mm') s FROM S3Object WHERE id > 1": [
        {"y": 2001, "d": 6815, "s": "2001-06-06 07:08"},
        {"y": 2020, "d": 2, "s": "2020-02-01 00:00"},
    ],
    "SELECT CHAR_LENGTH(name) AS n, COUNT(*), MAX(id) FROM S3Object GROUP BY n ORDER BY COUNT(*), n DESC": [
        {"n": 8, "_2": 1, "_3": 2},
        {"n": 5, "_2": 1, "_3": 30},
        {"n": 3, "_2": 1, "_3": 1},
    ],
    "SELECT price <> '' AS priced, COUNT(*) n FROM S3Object GROUP BY s3object.price <> '' ORDER BY n DESC": [
        {"priced": True, "n": 2},
        {"priced": False, "n": 1},
    ],
    "SELECT name AS id FROM S3Object ORDER BY _1 DESC LIMIT 2": [{"id": "Čeněk"}, {"id": 'B, "o"\nb'}],
    "SELECT 7/2 a, 7/2.0 b, -7 % 4 c, 9007199254740993 + 0 d, '${x}\\n''\u0007' e FROM S3Object LIMIT 1": [
        {"a": 3, "b": 3.5, "c": -3, "d": 9007199254740993, "e": "${x}\\n'\u0007"}
    ],
}


def test_csv(spark: Any, found: Path, tmp_path: Path) -> None:
    """Fields are texts, and numbers in comparisons with numbers."""
    for sql, expected in CSV_ANSWERS.items():
        assert selected(spark, tmp_path, sql, found / "people.csv") == expected, sql


def test_headers_and_compression(spark: Any, found: Path, tmp_path: Path) -> None:
    """They are detected or given by options."""
    sql = "SELECT _2 FROM S3Object LIMIT 1"
    packed = found / "people.dat"
    assert selected(spark, tmp_path, sql, packed, format="csv", csv=files.Csv("none")) == [{"_2": "name"}]
    assert selected(spark, tmp_path, sql, found / "_people.csv.bz2", csv=files.Csv("ignore")) == [{"_2": "Ann"}]
    with pytest.raises(SelectError, match="InvalidCompressionFormat"):
        files.detect(packed, format="csv", compression="bzip2")


JSON_ANSWERS: dict[str, list[Any]] = {
    "SELECT * FROM S3Object WHERE id = 9007199254740993": [{"ID": 9007199254740993, "to": "bob", "lines": []}],
    "SELECT s.id, s.note FROM S3Object s": [{"id": 1, "note": None}, {"id": 9007199254740993}, {"id": "3"}],
    "SELECT note IS NULL a, note IS MISSING b FROM S3Object": [
        {"a": True, "b": False},
        {"a": True, "b": True},
        {"a": True, "b": True},
    ],
    'SELECT s.lines[0].sku, s."to".name, s."to"."from" x, s."to".from2 FROM S3Object s': [
        {"sku": "a"},
        {},
        {"name": "cy"},
    ],
    "SELECT l.sku, l.n FROM S3Object[*].lines[*] l": [{"sku": "a", "n": 2}, {"sku": "b"}],
    "SELECT SUM(id), COUNT(note), COUNT(id), COUNT(*) FROM S3Object": [
        {"_1": 9007199254740997, "_2": 0, "_3": 3, "_4": 3}
    ],
    "SELECT COALESCE(s.note, s.n, 'none') n FROM S3Object s LIMIT 1": [{"n": "none"}],
    "SELECT s.id FROM S3Object s ORDER BY s.id DESC": [{"id": 9007199254740993}, {"id": "3"}, {"id": 1}],
    "SELECT l.sku, SUM(l.n) n FROM S3Object[*].lines[*] l GROUP BY l.sku ORDER BY l.sku": [
        {"sku": "a", "n": 2},
        {"sku": "b", "n": None},
    ],
}


def test_json_lines(spark: Any, found: Path, tmp_path: Path) -> None:
    """Missing fields are omitted, null is null, and numbers keep their digits."""
    for sql, expected in JSON_ANSWERS.items():
        assert selected(spark, tmp_path, sql, found / "orders.jsonl") == expected, sql


def test_json_documents(spark: Any, found: Path, tmp_path: Path) -> None:
    """Documents follow one another, over any number of lines."""
    path = found / "rules.json"
    wanted = "SELECT id FROM S3Object[*].rules[*].id WHERE id IS NOT MISSING"
    assert selected(spark, tmp_path, wanted, path) == [{"id": "1"}, {"id": "2"}]
    assert selected(spark, tmp_path, "SELECT * FROM S3Object[*].rules[*] r", path)[1] == {"expr": "y"}
    assert selected(spark, tmp_path, "SELECT * FROM S3Object[*][*]", path) == [{"a": 1}]
    assert selected(spark, tmp_path, "SELECT * FROM S3Object", path)[2] == {"_1": [{"a": 1}]}


def test_parquet(spark: Any, found: Path, tmp_path: Path) -> None:
    """Columns have the types of the file."""
    path = found / "lines.parquet"
    sql = "SELECT s.id, s.who.name, s.tags[1] t, s.tags[5] u, s.price * 2 p FROM S3Object s WHERE s.price = 2.5"
    assert selected(spark, tmp_path, sql, path) == [{"id": 1, "name": "ann", "t": "y", "u": None, "p": 5.0}]
    with pytest.raises(SelectError, match="EvaluatorBindingDoesNotExist at line 1, column 8: who has no column nme"):
        prepare("SELECT s.who.nme FROM S3Object s", files.detect(path))


def test_a_column_of_json_has_a_type_in_parquet(spark: Any, found: Path, tmp_path: Path) -> None:
    """It is the type of its values; mixed values are text."""
    from pyarrow import parquet

    query = prepare("SELECT * FROM S3Object[*].lines[*]", files.detect(found / "orders.jsonl"))
    with rows(spark, query) as (frame, _):
        write(typed(frame, whole=True), "parquet", tmp_path / "lines.parquet")
    assert parquet.read_table(tmp_path / "lines.parquet").to_pylist() == [{"n": 2, "sku": "a"}, {"n": None, "sku": "b"}]
    query = prepare("SELECT id FROM S3Object", files.detect(found / "orders.jsonl"))
    with rows(spark, query) as (frame, _):
        write(typed(frame, whole=False), "csv", tmp_path / "ids.csv")
    assert (tmp_path / "ids.csv").read_text() == "id\n1\n9007199254740993\n3\n"


def test_a_scan_range_reads_the_records_that_begin_in_it(spark: Any, tmp_path: Path) -> None:
    """Ranges one after the other read each record once, whole, with the names of the header."""
    import pyarrow
    from pyarrow import parquet

    lines = [f"{number},{'x' * number}\n" for number in range(40)]
    (tmp_path / "lines.csv").write_text("\nid,text\n" + "".join(lines))
    (tmp_path / "lines.jsonl").write_text("".join(f'{{"id": "{number}"}}\n' for number in range(40)))
    table = pyarrow.table({"id": [str(number) for number in range(40)]})
    parquet.write_table(table, tmp_path / "lines.parquet", row_group_size=7)
    for name, step in (("lines.csv", 97), ("lines.jsonl", 33), ("lines.parquet", 300)):
        size, found = (tmp_path / name).stat().st_size, []
        for first in range(0, size, step):
            part = select(spark, "SELECT id FROM S3Object", tmp_path / name, scan_range=f"{first}-{first + step - 1}")
            found += part.rows["id"].to_pylist()
        assert found == [str(number) for number in range(40)], name
    last = select(spark, "SELECT id FROM S3Object", tmp_path / "lines.csv", scan_range="-60")
    assert (last.rows.to_pylist(), last.statistics.scanned) == ([{"id": "39"}], len("id,text\n" + lines[39]))
    for wrong, code in (("9", "InvalidScanRange"), ("9-3", "InvalidScanRange")):
        with pytest.raises(SelectError, match=code):
            files.detect(tmp_path / "lines.csv", scan_range=wrong)


def test_the_bytes_of_a_query_are_counted(spark: Any, found: Path) -> None:
    """The file as it is, without compression, and the answer."""
    answer = select(spark, "SELECT name FROM S3Object LIMIT 1", found / "people.dat", format="csv")
    size = (found / "people.dat").stat().st_size
    assert answer.rows.to_pylist() == [{"name": "Ann"}]
    assert answer.statistics == (size, len(PEOPLE.encode()), answer.rows.nbytes)


def test_strict_s3_has_what_the_service_has(found: Path) -> None:
    """It detects no compression, the first row is data, and there are no groups and no order."""
    with pytest.raises(SelectError, match=r"InvalidCompressionFormat.*pass --compression gzip"):
        files.detect(found / "people.dat", format="csv", strict_s3=True)
    with pytest.raises(SelectError, match="UnsupportedScanRangeInput"):
        files.detect(found / "people.dat", format="csv", scan_range="0-9")
    (found / "people.TSV").write_text("id\tname\n")
    separated = files.detect(found / "people.TSV", csv=files.Csv(quote="'"), strict_s3=True)
    assert separated.csv == files.Csv("none", "\t", "'", "'")
    strict = files.detect(found / "people.csv", strict_s3=True)
    for sql, code in (
        ("SELECT name FROM S3Object", "MissingHeaders"),
        ("SELECT _1 FROM S3Object GROUP BY _1", "UnsupportedSqlStructure"),
        ("SELECT _1 FROM S3Object ORDER BY _1", "UnsupportedSqlStructure"),
    ):
        with pytest.raises(SelectError, match=code):
            prepare(sql, strict, strict_s3=True)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT CAST(name AS INT) FROM S3Object", "CastFailed"),
        ("SELECT SUM(name) FROM S3Object", "CastFailed"),
        ("SELECT 9223372036854775807 + CAST(id AS INT) FROM S3Object", "IntegerOverflow"),
        ("SELECT 1 / CAST(id AS INT) FROM S3Object WHERE 1 / (CAST(id AS INT) - 1) = 1", "EvaluatorInvalidArguments"),
    ],
)
def test_what_shows_only_in_the_rows_has_a_code_too(
    spark: Any, found: Path, tmp_path: Path, sql: str, code: str
) -> None:
    """It has a remedy, in a line."""
    with pytest.raises(SelectError) as raised:
        selected(spark, tmp_path, sql, found / "people.csv")
    assert raised.value.code == code
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_line_that_is_no_json_is_named(spark: Any, tmp_path: Path) -> None:
    """The error quotes it."""
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{bad\n')
    with pytest.raises(SelectError, match=r"JSONParsingError: .*\{bad"):
        selected(spark, tmp_path, "SELECT * FROM S3Object", tmp_path / "bad.jsonl")
