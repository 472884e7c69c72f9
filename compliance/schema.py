"""The schema of the log's lines, as Spark reads them, and the reasons why a line is malformed."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, partial, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import pyarrow as pa
from msgspec import Meta, Struct
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from accesslog.record import BUCKETS, SCHEMA_VERSION, Kinds

LARGEST = 2**63 - 1
"""Numbers are 64 bits wide."""
MOST = 2**48 - 1
"""No line counts more messages or bytes; so sums of at least 30,000 lines fit in 64 bits."""

_MOST_TIMES = 100_000
BEGIN_OF_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

REFUSALS = (msgspec.DecodeError, ValueError, OverflowError, RecursionError)
"""The exceptions of decoding any line (`ValueError`: bytes that are no text)."""

NAMES = frozenset({"v", "seq", "mono_us", "first_seq", "last_seq", "connection_id", "stream_id", "epoch"})
"""Numbers that are no amounts, and are never added up."""
LIMITS = frozenset(
    f"{name}_{unit}" for name in ("limit", "burst", "peak", "peak_burst", "reason") for unit in ("messages", "bytes")
)
"""Fields of limits. They are above 0; null means no limit."""
SIGNED = frozenset(
    f"{balance}_{bucket}"
    for balance in ("tokens", "began")
    for bucket in ("messages", "bytes", "peak_messages", "peak_bytes")
) | {"coordinator_ahead_ms"}
"""Fields that may be below 0: balances, which are a debt then, and a clock that may be ahead or behind."""
_RULES: dict[Any, Any] = {
    bool: bool,
    str: str,
    int: Annotated[int, Meta(ge=0, le=MOST)],
    float: Annotated[float, Meta(ge=0)],
    datetime: Annotated[datetime, Meta(tz=True)],
    tuple[int, ...]: Annotated[tuple[Annotated[int, Meta(ge=0, le=MOST)], ...], Meta(max_length=BUCKETS)],
}


class Micros(int):
    """A time, microseconds since 1970."""


class _Times:
    """Reads times; each way to write one, once: lines of one second have the same ones."""

    def __init__(self) -> None:
        self._known: dict[object, Micros] = {}

    def read(self, wanted: type, text: object) -> Micros:  # noqa: ARG002 - there is no other type that needs help
        """Parse a time of the log.

        Raises:
            ValidationError: If it is none.
        """
        time_ = self._known.get(text) if type(text) is str else None
        return self._new(text) if time_ is None else time_

    def _new(self, text: object) -> Micros:
        if len(self._known) > _MOST_TIMES:
            self._known.clear()
        time = self._known[text] = micros_of(text)
        return time


def micros_of(text: object) -> Micros:
    """Parse a time of the log into microseconds since 1970.

    Raises:
        ValidationError: If it is none.
        OverflowError: If it is before the year 1 or behind 9999 in UTC.
    """
    moment: datetime = msgspec.convert(text, strict(datetime))
    return Micros((moment.astimezone(UTC) - BEGIN_OF_1970) // _MICROSECOND)


def plain(python_type: Any) -> Any:
    """Return the type without its null."""
    if isinstance(python_type, UnionType):
        (python_type,) = (part for part in get_args(python_type) if part is not type(None))
    return python_type


def is_always_said(field: msgspec.structs.FieldInfo) -> bool:
    """Return whether each line of the field's kind has the field; others are left out where they have their default."""
    return field.default is msgspec.NODEFAULT


def strict(python_type: Any, name: str = "") -> Any:
    """Return the type with the rule for its values, without its null; `name` is the field's."""
    bare = plain(python_type)
    if bare is int and name in NAMES:
        return Annotated[int, Meta(ge=0, le=LARGEST)]
    if name in LIMITS:
        return Annotated[float, Meta(gt=0)]
    if name in SIGNED:
        return float
    return bare if get_origin(bare) is Literal else _RULES[bare]


def _record(kind: str, *, is_lenient: bool = False) -> type[Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(Kinds.BY_NAME[kind]):
        rule = Micros if plain(field.type) is datetime else strict(field.type, field.name)
        if field.encode_name == "v":
            rule = Annotated[int, Meta(ge=0, le=SCHEMA_VERSION)]
        if is_always_said(field):
            fields.append((field.name, rule | None if isinstance(field.type, UnionType) else rule))
        else:
            fields.append((field.name, rule | None, None))
    rules = {"__post_init__": _check_bursts} if kind == "limit" else {}
    # Scalars all: nothing for the collector to find.
    return msgspec.defstruct(
        kind,
        fields,
        tag_field="kind",
        tag=kind,
        kw_only=True,
        gc=False,
        namespace=rules,
        forbid_unknown_fields=not is_lenient,
    )


def without_burst(value_of: Callable[[str], Any]) -> list[str]:
    """Return the bursts that a limit line should have and has not, given the value of each field."""
    units = ("messages", "bytes")
    return [
        f"burst_{unit}" for unit in units if value_of(f"limit_{unit}") is not None and value_of(f"burst_{unit}") is None
    ]


def _check_bursts(line: Any) -> None:
    # Asked of each line: the long way only where it has something to say.
    lacks_messages = line.burst_messages is None and line.limit_messages is not None
    if lacks_messages or (line.burst_bytes is None and line.limit_bytes is not None):
        raise ValueError(", ".join(without_burst(partial(getattr, line))))


RECORDS: dict[str, type[Struct]] = {kind: _record(kind) for kind in Kinds.BY_NAME}
"""The type of each kind, with its fields in the record's order."""


_LENIENT = {kind: _record(kind, is_lenient=True) for kind in Kinds.BY_NAME}
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`")
"""msgspec's message for a field that it does not know."""


class Head(Struct, kw_only=True, gc=False):
    """The fields of every line, whatever its kind and version."""

    kind: Annotated[str, Meta(min_length=1, max_length=100)]
    v: Annotated[int, Meta(ge=0, le=LARGEST)]
    proxy_id: str
    boot_id: str
    seq: Annotated[int, Meta(ge=0, le=LARGEST)]
    start: Micros
    end: Micros
    duration_ms: Annotated[float, Meta(ge=0)]


def is_text(data: bytes) -> bool:
    """Return whether these bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def decoder(*, is_lenient: bool = False) -> msgspec.json.Decoder[Struct]:
    """Decodes a line of any kind; whatever breaks a rule is an error. Times are `Micros`.

    Args:
        is_lenient: Fields that this version does not know are passed over.
    """
    records = _LENIENT if is_lenient else RECORDS
    return msgspec.json.Decoder(reduce(or_, records.values()), dec_hook=_Times().read)


def head_decoder() -> msgspec.json.Decoder[Head]:
    """Decodes what every line has."""
    return msgspec.json.Decoder(Head, dec_hook=_Times().read)


BOOT = ("proxy_id", "boot_id")
LIMITER = ("proxy_id", "boot_id", "direction", "level", "name")
OBSERVED = "observe"
"""The `mode` of a limit that only observes."""
STEP_S = 0.1
"""Seconds of the smallest step of a clock: clocks are slewed by less, and both clocks alike."""
REJECTING = "reject"
"""The `mode` of a limit that refuses entries with an error in place of holding them."""

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
    """Return the union of all kinds' fields, with their types, null left out."""
    merged: dict[str, Any] = {}
    for kind in Kinds.BY_NAME:
        for name, python_type in _fields(kind).items():
            bare = plain(python_type)
            if merged.setdefault(name, bare) != bare:
                raise TypeError(f"field {name} has two types in the access log's record: give one another name")
    return merged


@cache
def arrow_schema() -> pa.Schema:
    """Return the row that a line is kept as: `kind` and every field of every kind."""
    fields = [
        pa.field(name, pa.string() if get_origin(python_type) is Literal else _TYPES[python_type])
        for name, python_type in all_fields().items()
    ]
    return pa.schema([pa.field("kind", pa.string()), *fields])


def row_schema() -> StructType:
    """Return the schema of the rows in Spark's types."""
    return from_arrow_schema(arrow_schema())


def placed_schema(*parts: StructField) -> StructType:
    """Return the schema of `row_schema` with the line's place in the log, and the columns that partition a table."""
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


LONGEST_QUARANTINED = 100_000
"""Characters of a malformed line that are kept."""
_LONGEST_NAMED = 100
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)")


def fault(line: bytes) -> str:
    """Return the first rule that the line breaks."""
    if not is_text(line):
        return "not UTF-8 text"
    if not line.decode().strip():
        return "empty line"
    fields = _object(line)
    if fields is None:
        return "not exactly one complete JSON object"
    return _of_head(fields) or _of_fields(fields["kind"], fields) or _of_decoder(line)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        fields = msgspec.json.decode(line)
    except REFUSALS:
        return None
    return fields if isinstance(fields, dict) else None


def _of_head(fields: dict[str, Any]) -> str | None:
    kind, version = fields.get("kind"), fields.get("v")
    if kind is None:
        return "missing: kind"
    if not isinstance(kind, str) or kind not in Kinds.BY_NAME:
        return f"unknown kind: {str(kind)[:_LONGEST_NAMED]}"
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return f"newer schema version: {version}"
    return None


def _of_fields(kind: str, fields: dict[str, Any]) -> str | None:
    types = {field.encode_name: field.type for field in msgspec.structs.fields(Kinds.BY_NAME[kind])}
    values_of = {name: fields[name] for name in types if fields.get(name) is not None}
    # A null limit means "none", so it must be written: a lost field must not lift a limit.
    absent = (set(required_fields(kind)) - values_of.keys()) | (set(nullable_fields(kind)) - fields.keys())
    faults = {
        "wrong type": [name for name, value in values_of.items() if not _is_of(value, types[name])],
        "missing": [name for name in types if name in absent],
        "impossible value": [
            *_impossible(values_of, types),
            *(without_burst(values_of.get) if kind == "limit" else ()),
        ],
    }
    return next((f"{problem}: {', '.join(names)}" for problem, names in faults.items() if names), None)


def _is_of(value: object, python_type: Any) -> bool:
    """Return whether it is written as such values are; a time that is none is an impossible value."""
    bare = plain(python_type)
    if bare is datetime:
        return True
    if bare is int:
        return type(value) is int and abs(value) <= LARGEST
    if bare is float:
        return type(value) in (int, float)
    if bare == tuple[int, ...]:
        return isinstance(value, list)
    return isinstance(value, bool if bare is bool else str)


def _impossible(values_of: dict[str, Any], types: dict[str, Any]) -> Iterator[str]:
    for name, value in values_of.items():
        is_time = plain(types[name]) is datetime
        if is_time and not (isinstance(value, str) and _RFC3339.fullmatch(value)):
            yield name
            continue
        try:
            _ = micros_of(value) if is_time else msgspec.convert(value, strict(types[name], name))
        except (msgspec.ValidationError, OverflowError):
            yield name


def _of_decoder(line: bytes) -> str:
    try:
        decoder().decode(line)
    except REFUSALS as error:
        return f"not a record: {error}"
    return "not a record"


def has_share() -> Column:
    """Return whether a limiter's line has a share of a limit that a fleet holds together."""
    return F.coalesce("share_messages", "share_bytes").isNotNull()


def seconds(time: Column) -> Column:
    """Return a timestamp as seconds since 1970, with microseconds as decimals."""
    return F.unix_micros(time) / 1e6


def rfc3339(time: Column) -> Column:
    """Return a timestamp as text; Spark would hand it over in the local time of this machine, without saying so."""
    return F.date_format(time, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
