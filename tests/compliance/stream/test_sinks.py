import pytest
from pyspark.sql.types import DateType, IntegerType, LongType, StructField, StructType

from compliance.stream.options import Job, JobError, Sink, Source
from compliance.stream.storage import tables_of

pytestmark = pytest.mark.spark
SCHEMA = StructType([StructField("x", IntegerType()), StructField("day", DateType())])
TOLD = StructType([*SCHEMA.fields, StructField("step", LongType())])


def job(out, *sink):
    return Job(Source("files", "log"), Sink(*sink), str(out))


def rows(spark, *numbers):
    return spark.createDataFrame([(number,) for number in numbers or (0,)], "x int").selectExpr(
        "x", "date_add(date'2026-11-21', x) AS day"
    )


def replace(spark, tmp_path, step, numbers):
    stage = f"{tmp_path}/stage"
    if numbers:
        rows(spark, *numbers).write.partitionBy("day").parquet(stage)
    tables_of(spark, job(tmp_path)).adopt("t", step, stage, SCHEMA)


def kept(tables):
    found = tables.read("t", TOLD)
    assert found is not None
    return found


def test_a_part_is_replaced_as_a_whole_whatever_days_it_had(spark, tmp_path):
    tables = tables_of(spark, job(tmp_path))
    assert tables.read("t", TOLD) is None
    for step, numbers in ((0, [1, 2]), (1, [3]), (0, [2, 4])):
        replace(spark, tmp_path, step, numbers)
    found = kept(tables).orderBy("x").collect()
    assert [(row.x, row.step, str(row.day)) for row in found] == [
        (2, 0, "2026-11-23"),
        (3, 1, "2026-11-24"),
        (4, 0, "2026-11-25"),
    ]
    replace(spark, tmp_path, 0, [])
    assert [row.x for row in kept(tables).collect()] == [3]


def test_a_folder_becomes_a_part_without_being_copied(spark, tmp_path):
    replace(spark, tmp_path, 0, [9])
    rows(spark, 1).write.partitionBy("day").parquet(f"{tmp_path}/stage")
    (written,) = (tmp_path / "stage").rglob("*.parquet")
    inode = written.stat().st_ino
    tables_of(spark, job(tmp_path)).adopt("t", 0, f"{tmp_path}/stage", SCHEMA)
    assert [row.x for row in kept(tables_of(spark, job(tmp_path))).collect()] == [1]
    assert [file.stat().st_ino for file in (tmp_path / "t").rglob("*.parquet")] == [inode]
    assert not (tmp_path / "stage").exists()


def test_a_connector_that_is_not_there_is_named_with_the_remedy(spark, tmp_path):
    with pytest.raises(JobError, match=r"--sink delta: its connector .*io\.delta"):
        tables_of(spark, job(tmp_path, "delta"))
    spark.conf.set("spark.sql.catalog.here", "org.apache.iceberg.spark.SparkCatalog")
    with pytest.raises(JobError, match=r"--sink iceberg: its connector .*iceberg-spark-runtime"):
        tables_of(spark, job(tmp_path, "iceberg", "here.sluice"))


def test_a_catalog_that_spark_does_not_know_is_named_with_the_remedy(spark, tmp_path):
    with pytest.raises(JobError, match=r"--catalog lake\.sluice: .*spark\.sql\.catalog\.lake=org\.apache\.iceberg"):
        tables_of(spark, job(tmp_path, "iceberg", "lake.sluice"))
