"""The record's types with every rule that a line must keep, for reading: what decodes is right.

Derived from the types that the proxy writes, so that the two cannot drift apart. Fields with a default are null where
they are left out or null, as they are in Spark's rows.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from accesslog.delays import BUCKETS
from accesslog.record import SCHEMA_VERSION, Kinds

LARGEST = 2**63 - 1
"""Numbers are 64 bits wide."""
MOST = 2**48 - 1
"""No line tells of more messages or bytes; so sums of 30,000 lines at the least are numbers, too."""

_MOST_TIMES = 100_000
BEGIN_OF_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

REFUSALS = (msgspec.DecodeError, ValueError, OverflowError, RecursionError)
"""All that decoding may raise, whatever stands in a line (`ValueError`: bytes that are no text)."""

_NAMES = frozenset({"v", "seq", "first_seq", "last_seq", "connection_id", "stream_id"})
"""Numbers that are no amounts: nobody adds them up."""
_LIMITS = frozenset(
    f"{what}_{unit}" for what in ("limit", "burst", "peak", "peak_burst", "reason") for unit in ("messages", "bytes")
)
"""No limiter has one of nothing: where there is none, null stands."""
_BALANCES = frozenset(f"tokens_{bucket}" for bucket in ("messages", "bytes", "peak_messages", "peak_bytes"))
"""Below 0 they are a debt."""
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

    def read(self, wanted: type, said: object) -> Micros:  # noqa: ARG002 - there is no other type that needs help
        """What a time says.

        Raises:
            ValidationError: If it is none.
        """
        known = self._known.get(said) if type(said) is str else None
        return self._new(said) if known is None else known

    def _new(self, said: object) -> Micros:
        if len(self._known) > _MOST_TIMES:
            self._known.clear()
        found = self._known[said] = micros_of(said)
        return found


def micros_of(said: object) -> Micros:
    """What a time says.

    Raises:
        ValidationError: If it is none.
        OverflowError: If it is before the year 1 or behind 9999 in UTC.
    """
    time: datetime = msgspec.convert(said, strict(datetime))
    return Micros((time.astimezone(UTC) - BEGIN_OF_1970) // _MICROSECOND)


def plain(python_type: Any) -> Any:
    """The type without its null."""
    if isinstance(python_type, UnionType):
        (python_type,) = (part for part in get_args(python_type) if part is not type(None))
    return python_type


def is_always_said(field: msgspec.structs.FieldInfo) -> bool:
    """Whether each line of the field's kind has it; others are left out where they have their default."""
    return field.default is msgspec.NODEFAULT


def strict(python_type: Any, name: str = "") -> Any:
    """The type with the rule for its values, without its null; `name` is the field's."""
    bare = plain(python_type)
    if bare is int and name in _NAMES:
        return Annotated[int, Meta(ge=0, le=LARGEST)]
    if name in _LIMITS:
        return Annotated[float, Meta(gt=0)]
    if name in _BALANCES:
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


def without_burst(said: Callable[[str], Any]) -> list[str]:
    """The bursts that a limit line should have and has not, given the value of each field."""
    units = ("messages", "bytes")
    return [f"burst_{unit}" for unit in units if said(f"limit_{unit}") is not None and said(f"burst_{unit}") is None]


def _check_bursts(line: Any) -> None:
    # Asked of each line: the long way only where it has something to say.
    lacks_messages = line.burst_messages is None and line.limit_messages is not None
    if lacks_messages or (line.burst_bytes is None and line.limit_bytes is not None):
        raise ValueError(", ".join(without_burst(partial(getattr, line))))


RECORDS: dict[str, type[Struct]] = {kind: _record(kind) for kind in Kinds.BY_NAME}
"""Of each kind its type; its fields stand in the order of the record's own."""


_LENIENT = {kind: _record(kind, is_lenient=True) for kind in Kinds.BY_NAME}
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`")
"""How msgspec says that it knows a field not."""


class Head(Struct, kw_only=True, gc=False):
    """What every line has, whatever its kind and version."""

    kind: Annotated[str, Meta(min_length=1, max_length=100)]
    v: Annotated[int, Meta(ge=0, le=LARGEST)]
    proxy_id: str
    boot_id: str
    seq: Annotated[int, Meta(ge=0, le=LARGEST)]
    start: Micros
    end: Micros
    duration_ms: Annotated[float, Meta(ge=0)]


def is_text(data: bytes) -> bool:
    """Whether these bytes are UTF-8."""
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
