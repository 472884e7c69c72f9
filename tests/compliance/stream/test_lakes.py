"""Rows in a further table, here of Parquet; those of Delta and Iceberg are in `test_connectors.py`."""

import pytest

from compliance.stream.folder import load
from compliance.stream.lakes import lake_of, publish
from compliance.stream.log_file import JobPlaces, read_log_file
from compliance.stream.options import Job, JobError, Sink, Source
from tests.compliance.planted import planted, write_file
from tests.compliance.stream.recount import keys_of

pytestmark = pytest.mark.spark


class ParquetLake:
    """Each commit is a folder."""

    def __init__(self, spark, folder):
        self.commits = 0
        self._spark = spark
        self._folder = folder

    def read(self):
        return self._spark.read.parquet(f"{self._folder}/*") if self.commits else None

    def append(self, rows):
        rows.write.parquet(f"{self._folder}/{self.commits}")
        self.commits += 1


def test_table_has_each_line_once_whenever_it_is_updated(spark, tmp_path):
    job, lake = Job(Source("files", "log"), Sink(), f"{tmp_path}/out"), ParquetLake(spark, tmp_path / "lake")
    lines = planted("p", 20).encoded()
    for name, part in (("a", [*lines[:20], lines[3]]), ("b", lines[20:40]), ("c", lines[35:])):
        write_file(tmp_path / "log", f"{name}.jsonl", part)
        read_log_file(f"{tmp_path}/log/{name}.jsonl", job.out)
        for _ in range(2):
            publish(spark, job, load(JobPlaces(job.out)), lake)
    assert lake.commits == 3
    rows = lake.read()
    assert keys_of(rows) == [("p", "boot-1", seq) for seq in range(60)]
    assert {row.name for row in rows.select("name").distinct().collect()} == {"a", "b", "c"}


def test_a_connector_that_is_not_there_is_named_with_the_remedy(spark, tmp_path):
    def job(*sink):
        return Job(Source("files", "log"), Sink(*sink), str(tmp_path))

    assert lake_of(spark, job()) is None
    with pytest.raises(JobError, match=r"--sink delta: its connector .*io\.delta"):
        lake_of(spark, job("delta"))
    with pytest.raises(JobError, match=r"--catalog lake\.sluice: .*spark\.sql\.catalog\.lake=org\.apache\.iceberg"):
        lake_of(spark, job("iceberg", "lake.sluice"))
    spark.conf.set("spark.sql.catalog.here", "org.apache.iceberg.spark.SparkCatalog")
    with pytest.raises(JobError, match=r"--sink iceberg: its connector .*iceberg-spark-runtime"):
        lake_of(spark, job("iceberg", "here.sluice"))
