"""SQL over topics from a client of Spark Connect, which cannot inspect Spark's plans."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import eventkit
from eventkit.archive import archive
from eventkit.conformance import proves

PROGRAM = Path(__file__).with_name("programs.py")

QUERIES = {
    "SELECT count(*), count(DISTINCT offset) FROM orders": [[30, 30]],
    "SELECT payload:n::int FROM orders WHERE offset > (SELECT max(offset) - 2 FROM orders) ORDER BY 1": [[28], [29]],
    "SELECT payload:to::string, count(*) FROM orders WHERE key = 'k1' GROUP BY 1 ORDER BY 1": [["p0", 5], ["p1", 5]],
    "SELECT count(*) FROM (SELECT payload:to FROM orders GROUP BY payload:to)": [[2]],
    "SELECT count(*) FROM `eventkit.tasks`": [[1]],
    "WITH some AS (SELECT offset % 2 AS odd FROM orders) SELECT odd, '{n}' FROM some GROUP BY odd ORDER BY odd DESC": [
        [1, "{n}"],
        [0, "{n}"],
    ],
    "SELECT 1": [[1]],
    "SELECT count(*) FROM ordres": "there is no stream 'ordres': did you mean 'orders'?",
    "DROP TABLE orders": "must begin with SELECT or WITH, and cannot change data",
}


@proves("D10", "D17", "D18")
@pytest.mark.slow
def test_a_client_of_connect_gets_the_same_answers(kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """Queries over archive and live events work, and errors are the same lines."""
    stream = kit.stream("orders")
    kit.stream("eventkit.tasks").publish({"kind": "succeeded"})
    for begin in (0, 10, 20):
        numbers = range(begin, begin + 10)
        stream.publish_many(eventkit.NewEvent({"to": f"p{n % 2}", "n": n}, key=f"k{n % 3}") for n in numbers)
        if begin < 20:
            archive(url, "orders", to=tmp_path, prune=begin == 0)
    command = [sys.executable, str(PROGRAM), "run_queries", url, str(tmp_path), *QUERIES]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    *answers, older, newer, copied = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (older, newer) == ([[30], [30]], [[31]])
    assert copied == [1, 21]
    for (sql, expected), answer in zip(QUERIES.items(), answers, strict=True):
        if isinstance(expected, str):
            assert expected in answer, sql
            assert "\n" not in answer
        else:
            assert answer == expected, sql
