"""What is timed: `python -m compliance.bench.timed WHAT LOG OUT`, each in a process of its own, Spark just started."""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from compliance.schema import row_schema
from compliance.session import spark_session
from compliance.stream.options import Job, Sink, Source
from compliance.stream.run import start


def bare(spark: SparkSession, log: str, out: str) -> None:  # noqa: ARG001 - it writes nothing
    """Spark's own JSON source with the log's schema; every field is parsed, and its values are counted."""
    # Times as text: reading them so costs it less.
    types = {f.name: StringType() if f.dataType == TimestampType() else f.dataType for f in row_schema().fields}
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    spark.read.schema(schema).json(log).agg(*(F.count(name) for name in schema.names)).collect()


def job(spark: SparkSession, log: str, out: str) -> None:
    """The whole job, from the first file to the last table."""
    start(spark, Job(Source("files", log), Sink(), out), lambda _: None, follow=False).awaitTermination()


if __name__ == "__main__":
    what, log, out = sys.argv[1:]
    with spark_session(Path(out).with_suffix(".log")) as session:
        began = time.perf_counter()
        {"bare": bare, "job": job}[what](session, log, out)
        print(time.perf_counter() - began)  # noqa: T201 - the answer
