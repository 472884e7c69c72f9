import json
from datetime import UTC, datetime

import msgspec
import pytest
from pyspark.sql.types import ArrayType, DoubleType, LongType, StringType, TimestampType

from accesslog.record import Kinds
from compliance.schema import (
    decoder,
    defaulted_fields,
    fault,
    nullable_fields,
    required_fields,
    row_schema,
)
from tests.compliance.planted import PlantedLog


def test_the_schema_has_every_field_of_the_record_and_no_other():
    fields = {field.encode_name for kind in Kinds.BY_NAME.values() for field in msgspec.structs.fields(kind)}
    assert set(row_schema().names) == fields | {"kind"}


@pytest.mark.parametrize("kind", Kinds.BY_NAME)
def test_every_field_is_either_required_or_nullable_or_has_a_default(kind):
    names = {field.encode_name for field in msgspec.structs.fields(Kinds.BY_NAME[kind])}
    fields = [*required_fields(kind), *nullable_fields(kind), *defaulted_fields(kind)]
    assert len(fields) == len(names)
    assert set(fields) == names


def test_what_tells_of_a_limit_or_its_keeping_has_no_default():
    """A field that was lost must not look like a limit that there was not."""
    assert {"limit_messages", "limit_bytes", "burst_messages", "burst_bytes"} <= set(nullable_fields("limit"))
    assert {"v", "mode", "passed_messages", "passed_bytes"} <= set(required_fields("limit"))
    assert "rejected_messages" in defaulted_fields("limit")


def test_types_are_those_of_the_record():
    types = {field.name: type(field.dataType) for field in row_schema().fields}
    assert types["seq"] is LongType
    assert types["duration_ms"] is types["limit_messages"] is DoubleType
    assert types["direction"] is types["topic"] is StringType
    assert types["start"] is TimestampType
    assert [name for name, kind in types.items() if kind is TimestampType] == [
        "start",
        "end",
        "held_since",
        "complete_until",
        "lost_from",
        "lost_until",
    ]
    assert row_schema()["delay_hist"].dataType == ArrayType(LongType())


def test_times_are_written_as_the_schema_reads_them():
    written = json.loads(msgspec.json.encode(datetime(2026, 11, 21, 11, 29, 0, 123456, tzinfo=UTC)))
    assert written == "2026-11-21T11:29:00.123456Z"


@pytest.mark.parametrize("ahead_ms", [-(10.0**9), -0.25, 0.0, 0.25, None])
def test_a_coordinators_clock_may_be_behind_not_its_exactness(ahead_ms):
    log = PlantedLog()
    log.share(0.5, 0.25, "granted", coordinator_ahead_ms=ahead_ms)
    [line] = log.encoded()
    assert msgspec.structs.asdict(decoder().decode(line))["coordinator_ahead_ms"] == ahead_ms
    log.share(0.5, 0.25, "granted", coordinator_ahead_ms=ahead_ms, coordinator_ahead_within_ms=-0.25)
    assert fault(log.encoded()[1]) == "impossible value: coordinator_ahead_within_ms"
