"""Options are checked before anything is read; each error is a line with its remedy."""

import pickle
import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructField, StructType

from eventkit.conformance.clauses import proves
from eventkit.spark import options as options_module
from eventkit.spark.options import Address, ReadOptions, WriteOptions, check_shared, master_of
from eventkit.spark.reader import BatchReader
from eventkit.spark.writer import BatchWriter

HERE = {"url": "sqlite:///shop.db"}
ORDERS = {**HERE, "topic": "orders"}


@proves("D2")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**ORDERS, "startingOffset": "1"}, "eventkit has no option startingOffset: did you mean startingOffsets?"),
        ({**ORDERS, "xyz": "1"}, "eventkit has no option xyz: there are url, "),
        ({"topic": "orders"}, "name the database by one of url, .* not by none"),
        ({**ORDERS, "urlEnv": "SHOP"}, "name the database by one of url, .* not by url and urlEnv"),
        (HERE, "name what to read by one of topic, .* not by none"),
        ({**ORDERS, "subscribe": "orders"}, "name what to read by one of topic, .* not by topic and subscribe"),
        ({**HERE, "topic": ""}, "the name of a topic has 1 to 255 characters, not 0"),
        ({**HERE, "subscribePattern": "("}, r"subscribePattern must be a regular expression, not '\('"),
        ({**HERE, "table": "task"}, "table is one of events, tasks, .*, not 'task': did you mean tasks?"),
        ({**ORDERS, "table": "tasks"}, "topic is for streams, and table=tasks is not one: leave one of the two out"),
        ({**ORDERS, "startingOffsets": "first"}, "startingOffsets is earliest, latest, an offset, or JSON as in"),
        ({**ORDERS, "startingOffsets": "-1"}, "startingOffsets is earliest, latest, an offset, or JSON as in"),
        ({**ORDERS, "startingOffsets": "{orders: 1}"}, "startingOffsets is not JSON: write it as in"),
        ({**ORDERS, "endingOffsets": '{"orders": null}'}, "endingOffsets of orders is earliest, latest, an offset"),
        ({**ORDERS, "startingTimestamp": "yesterday"}, "startingTimestamp must be a time such as 2026-01-31T12:00:00Z"),
        ({**ORDERS, "endingTimestamp": "2026-01-31T12:00"}, r"has no time zone: write 2026-01-31T12:00Z, or .*\+01:00"),
        (
            {**ORDERS, "startingTimestamp": "1", "startingOffsets": "1"},
            "startingOffsets and startingTimestamp both set the same bound: leave one of them out",
        ),
        ({**ORDERS, "minPartitions": "many"}, "minPartitions is a whole number from 1, not 'many'"),
        ({**ORDERS, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number from 1, not '0'"),
        ({**ORDERS, "maxTriggerDelay": "soon"}, "maxTriggerDelay is a duration such as 500ms, 30s, 15m or 1h"),
        ({**ORDERS, "failOnDataLoss": "maybe"}, "failOnDataLoss is one of true, false, not 'maybe'"),
        ({**ORDERS, "layout": "kafk"}, "layout is one of native, kafka, not 'kafk': did you mean kafka?"),
        ({**ORDERS, "layout": "kafka", "payloadSchema": "id LONG"}, "payloadSchema is for layout=native"),
        ({**ORDERS, "key": "[1]"}, "key is one key, or several as JSON"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    """No option is ignored."""
    with pytest.raises(ValueError, match=message) as raised:
        ReadOptions.parse(options)
    assert "\n" not in str(raised.value)


@proves("D2")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"txnAppId": "a"}, "txnAppId and txnVersion name a write together: give both"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion name a write together: give both"),
        ({"writeId": "a", "txnAppId": "a", "txnVersion": "1"}, "writeId names a single write, .* leave one of the two"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion is a whole number from 0, not '-1'"),
        ({"txnAppID": "a", "txnVersio": "1"}, "eventkit has no option txnVersio: did you mean txnVersion?"),
    ],
)
def test_names_of_writes(options: dict[str, str], message: str) -> None:
    """A write has one kind of name, and all its parts."""
    with pytest.raises(ValueError, match=message):
        WriteOptions.parse({**ORDERS, **options})


@proves("D10")
def test_a_worker_without_the_package_reports_how_to_install_it() -> None:
    """Unpickling the data sent to it raises the error, which needs nothing of the package."""
    schema = StructType([StructField("payload", StringType())])
    writer = BatchWriter(WriteOptions.parse(ORDERS), schema, overwrite=False)
    for sent in (BatchReader(ReadOptions.parse(ORDERS), StructType()), writer):
        code = (
            "import pickle, sys; sys.modules['eventkit'] = None; sys.stdin = sys.stdin.buffer; "
            "pickle.loads(sys.stdin.read())"
        )
        arriving = subprocess.run([sys.executable, "-c", code], input=cloudpickle.dumps(sent), capture_output=True)
        assert b"ModuleNotFoundError: eventkit" in arriving.stderr
        assert b"run pip install 'eventkit-db[spark]' there" in arriving.stderr
    assert vars(cloudpickle.loads(cloudpickle.dumps(writer)))["_writer"] == writer._writer


@proves("D2")
@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "lowLatency"])
def test_a_batch_has_no_options_of_streams(name: str) -> None:
    """They would be ignored, and all events read."""
    options = ReadOptions.parse({**ORDERS, name: "true" if name == "lowLatency" else "5"})
    with pytest.raises(ValueError, match=f"{name} is for streams, .* set endingOffsets .* or use spark.readStream"):
        BatchReader(options, StructType())


@proves("D10")
def test_a_file_on_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that all machines see it permits it, or Spark on one machine."""
    command = ["java", "org.apache.spark.deploy.SparkSubmit", "--conf"]
    assert master_of([*command, "spark.master=local[2]", "pyspark-shell"]) == "local[2]"
    assert master_of(["--master", "spark://host:7077", "job.py"]) == "spark://host:7077"
    assert master_of([*command, "spark.app.name=spark", "job.py"]) is None
    shared = {**ORDERS, "sharedFile": "true"}
    for master, refused in (("spark://host:7077", True), ("local-cluster[2,1,512]", True), ("local[*]", False)):
        monkeypatch.setattr(options_module, "_master", lambda master=master: master)
        for parse in (ReadOptions.parse, WriteOptions.parse):
            check_shared(parse(shared))
            check_shared(parse({**ORDERS, "url": "postgresql://host/shop"}))
            with pytest.raises(ValueError, match="set option sharedFile") if refused else nullcontext():
                check_shared(parse(ORDERS))


@pytest.mark.parametrize(
    ("name", "value", "attribute", "read"),
    [
        ("STARTINGOFFSETS", "Earliest", "starting.place", "earliest"),
        ("endingOffsets", "7", "ending.place", 7),
        ("startingTimestamp", "1970-01-01T01:00:00.5+01:00", "starting.moment", 500),
        ("startingtimestamp", "1500", "starting.moment", 1500),
        ("maxTriggerDelay", "15m", "max_delay", 900.0),
        ("maxTriggerDelay", "250", "max_delay", 0.25),
        ("lowLatency", "TRUE", "low_latency", True),
    ],
)
def test_what_is_right_is_read(name: str, value: str, attribute: str, read: Any) -> None:
    """Names and words may have any case, as in Spark; moments any zone."""
    found: Any = ReadOptions.parse({**ORDERS, name: value})
    for part in attribute.split("."):
        found = getattr(found, part)
    assert found == read


@proves("D10")
def test_options_travel_without_the_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Workers and plans get the name of the secret only."""
    (tmp_path / "url").write_text("postgresql://me:secret@host/shop\n")
    for options in ({"urlEnv": "SHOP"}, {"urlFile": str(tmp_path / "url")}):
        monkeypatch.delenv("SHOP", raising=False)
        sent = pickle.dumps(ReadOptions.parse({**options, "topic": "orders"}))
        assert b"secret" not in sent
        monkeypatch.setenv("SHOP", "postgresql://me:secret@host/shop")
        assert pickle.loads(sent).address.resolve() == "postgresql://me:secret@host/shop"
    assert "secret" not in repr(ReadOptions.parse({**ORDERS, "url": "postgresql://me:secret@host/shop"}))


@proves("D2", "D10")
def test_a_missing_secret_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The process that needs it raises the error, which may be on another machine."""
    monkeypatch.delenv("SHOP", raising=False)
    with pytest.raises(ValueError, match="urlEnv names SHOP, which is not set here: set it on all machines"):
        Address(env="SHOP").resolve()
    with pytest.raises(ValueError, match=r"urlFile names .*gone, which cannot be read here \(No such file"):
        Address(file=str(tmp_path / "gone")).resolve()
