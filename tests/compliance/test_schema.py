import json
from datetime import UTC, datetime

import msgspec
import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, TimestampType

from accesslog.record import Kinds
from compliance.schema import line_schema, nullable_fields, number_fields, required_fields, row_schema, time_fields


def test_the_schema_has_every_field_of_the_record_and_no_other():
    fields = {field.encode_name for kind in Kinds.BY_NAME.values() for field in msgspec.structs.fields(kind)}
    assert set(line_schema().names) == fields | {"kind"}
    assert row_schema().names == line_schema().names


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_every_field_is_either_required_or_nullable(kind):
    names = {field.encode_name for field in msgspec.structs.fields(Kinds.BY_NAME[kind])}
    assert set(required_fields(kind)) | set(nullable_fields(kind)) == names
    assert not set(required_fields(kind)) & set(nullable_fields(kind))


def test_types_are_those_of_the_record():
    types = {field.name: type(field.dataType) for field in row_schema().fields}
    assert types["seq"] is LongType
    assert types["duration_ms"] is types["limit_messages"] is DoubleType
    assert types["direction"] is types["topic"] is StringType
    assert types["start"] is TimestampType
    assert time_fields() == ["start", "end"]
    assert "seq" in number_fields()
    assert "last" not in number_fields()


def test_times_are_written_as_the_schema_reads_them():
    written = json.loads(msgspec.json.encode(datetime(2026, 11, 21, 11, 29, 0, 123456, tzinfo=UTC)))
    assert written == "2026-11-21T11:29:00.123456Z"
