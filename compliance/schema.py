"""The access log's schema for Arrow and Spark, derived from the record's types so that the two cannot drift apart.

All kinds share one wide row: the union of their fields. What a kind does not have is null.
"""

from datetime import datetime
from types import UnionType
from typing import Any, Literal, get_origin

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from accesslog.record import Kinds
from compliance.strict import is_always_said, plain

BOOT = ("proxy_id", "boot_id")
LIMITER = ("proxy_id", "boot_id", "direction", "level", "name")
OBSERVED = "observe"
REJECTING = "reject"
"""The `mode` of limit lines that tell of no limit, but of what one would have done."""

TIME = pa.timestamp("us", tz="UTC")
_TYPES: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime: TIME,
    tuple[int, ...]: pa.list_(pa.int64()),
}


def _fields(kind: str) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(Kinds.BY_NAME[kind])}


def _always(kind: str) -> dict[str, Any]:
    """The fields that are in every line of a kind."""
    fields = msgspec.structs.fields(Kinds.BY_NAME[kind])
    return {field.encode_name: field.type for field in fields if is_always_said(field)}


def all_fields() -> dict[str, Any]:
    """The union of all kinds' fields, with their types, null left out."""
    merged: dict[str, Any] = {}
    for kind in Kinds.BY_NAME:
        for name, python_type in _fields(kind).items():
            bare = plain(python_type)
            if merged.setdefault(name, bare) != bare:
                raise TypeError(f"field {name} has two types in the access log's record: give one another name")
    return merged


def arrow_schema() -> pa.Schema:
    """The row that a line is kept as: `kind` and every field of every kind."""
    fields = [pa.field(name, _type(python_type)) for name, python_type in all_fields().items()]
    return pa.schema([pa.field("kind", pa.string()), *fields])


def row_schema() -> StructType:
    """The same in Spark's types."""
    return from_arrow_schema(arrow_schema())


def _type(python_type: Any) -> pa.DataType:
    return pa.string() if get_origin(python_type) is Literal else _TYPES[python_type]


def placed_schema(*parts: StructField) -> StructType:
    """The same with the line's place in the log, and with the columns that a table is parted by."""
    place = [StructField("file", StringType()), StructField("line", LongType())]
    return StructType([*row_schema().fields, *place, *parts])


def required_fields(kind: str) -> list[str]:
    """Fields of a kind that must have a value."""
    return [name for name, python_type in _always(kind).items() if not isinstance(python_type, UnionType)]


def nullable_fields(kind: str) -> list[str]:
    """Fields of a kind that must be there but may be null."""
    return [name for name, python_type in _always(kind).items() if isinstance(python_type, UnionType)]


def defaulted_fields(kind: str) -> list[str]:
    """Fields of a kind that are left out where they have their default, as in lines of proxies that knew them not."""
    return [name for name in _fields(kind) if name not in _always(kind)]
