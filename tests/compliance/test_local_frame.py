import pytest

from compliance.session import local_frame

pytestmark = pytest.mark.spark
TYPES = {"name": "string", "seq": "long", "s": "double", "l": "array<long>"}


def test_values_come_back_as_they_were(spark):
    rows = [("a\"\\'\n\u202f☃", 2**62, 1763724540.123456, [1, 2]), ("", None, None, [])]
    assert [tuple(row) for row in local_frame(spark, rows, TYPES).collect()] == rows


def test_no_rows_are_none(spark):
    assert local_frame(spark, [], TYPES).collect() == []
    assert local_frame(spark, [], TYPES).columns == list(TYPES)
