"""The job with a real Kafka as its source, and real tables of Delta and Iceberg, each as its own connector has it.

On request: `pytest -m on_request tests/compliance/stream/test_connectors.py` (five minutes, and 700 MB once).
"""

import json
import os
import subprocess
import sys

import pyarrow.dataset as ds
import pytest

from tests.compliance.planted import planted, write_file
from tests.compliance.stream.connectors import DELTA, ICEBERG, KAFKA_SOURCE, KafkaBroker, connector, other_pyspark
from tests.spark_java import spark_java

pytestmark = [pytest.mark.on_request, pytest.mark.slow]
_RUN_S = 600


def run_python(*words, **environment):
    """Run Python with these arguments and the Java options of other tests; return its output."""
    environment = os.environ | {"JAVA_TOOL_OPTIONS": spark_java()} | environment
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_RUN_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_job(*options, **environment):
    return json.loads(run_python("-m", "sluice", "compliance", "run", "--once", "--json", *options, **environment))


def spark_options(settings):
    return [word for setting in settings for word in ("--spark", setting)]


def test_each_kafka_message_becomes_one_row(tmp_path):
    lines = planted("kafka", 20).encoded()
    out = tmp_path / "out"
    with KafkaBroker(tmp_path) as kafka:
        kafka.make_topic("log")
        source = ("subscribe=log", "startingOffsets=earliest", f"kafka.bootstrap.servers={kafka.address}")
        options = ["--source", "kafka", *(word for option in source for word in ("--source-option", option))]
        options += [*spark_options([connector(*KAFKA_SOURCE)]), "--out", out]
        for part, there in (([*lines[:30], b"torn"], 31), (lines[20:], 71), ((), 71)):
            kafka.send("log", part)
            assert run_job(*options)["lines"] == there
    summary = json.loads((out / "summary.json").read_bytes())
    assert (summary["rows"], summary["duplicates"], summary["malformed"], summary["missing"]) == (60, 10, 1, 0)
    rows = ds.dataset(out / "rows", partitioning="hive").to_table(["seq", "file"]).to_pylist()
    assert {row["seq"] for row in rows} == set(range(60))
    # Kafka's producer chooses a partition for each batch without keys.
    assert {row["file"] for row in rows} <= {"log/0", "log/1"}


_READ = """
import json, sys
from pyspark.sql import SparkSession
settings, table, kind = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for setting in settings:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
rows = spark.table(table) if kind == "iceberg" else spark.read.format(kind).load(table)
print("ROWS", json.dumps(sorted(row[0] for row in rows.select("seq").collect())))
"""


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_lake_has_each_line_once(tmp_path, kind):
    lines, spark = planted("lake", 20).encoded(), other_pyspark()
    out, more, table = tmp_path / "out", [], "lake.sluice.rows"
    if kind == "delta":
        settings = [
            connector(*DELTA),
            "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        ]
        table = str(out / "delta/rows")
    else:
        settings = [
            connector(*ICEBERG),
            "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type=hadoop",
            f"spark.sql.catalog.lake.warehouse={tmp_path / 'warehouse'}",
        ]
        more = ["--catalog", "lake.sluice"]
    for name, part in (("a", lines[:30]), ("b", lines[25:]), ("c", [lines[40], b"torn"])):
        write_file(tmp_path / "log", f"{name}.jsonl", part)
        run_job(
            "--access-log", tmp_path / "log", "--out", out, "--sink", kind, *more, *spark_options(settings), **spark
        )
    output = run_python("-c", _READ, json.dumps(settings), table, kind, **spark)
    [rows] = (line.removeprefix("ROWS ") for line in output.splitlines() if line.startswith("ROWS "))
    assert json.loads(rows) == list(range(60))
