from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from compliance.session import local_frame, spark_session

pytestmark = pytest.mark.spark
TYPES = {"name": "string", "seq": "long", "s": "double", "l": "array<long>"}


def test_values_come_back_as_they_were(spark):
    rows = [("a\"\\'\n\u202f☃", 2**62, 1763724540.123456, [1, 2]), ("", None, None, [])]
    assert [tuple(row) for row in local_frame(spark, rows, TYPES).collect()] == rows


def test_no_rows_are_none(spark):
    assert local_frame(spark, [], TYPES).collect() == []
    assert local_frame(spark, [], TYPES).columns == list(TYPES)


def test_session_ends_without_a_warning_when_java_is_gone(monkeypatch, tmp_path):
    """The error that ends the session names the cause; a warning of PySpark would be two lines more."""
    context = object.__new__(SparkContext)
    context._jsc = Mock(**{"stop.side_effect": Py4JError("the connection broke")})
    context._accumulatorServer = Mock()
    session = SimpleNamespace(sparkContext=context, stop=context.stop)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: session)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    monkeypatch.setattr(SparkContext, "_jvm", Mock())
    with pytest.raises(ConnectionError), spark_session(tmp_path / "spark.log"):
        raise ConnectionError
