"""Lines of the access log to rows: in columns where all lines keep the rules, line by line elsewhere.

Arrow's JSON reader takes most of what the rules refuse (a lost field is null, a time may lack its zone), so its columns
are checked by the rules of `compliance.schema`, and a block with any doubt goes to the strict reader. What that one
finds is what counts: the columns only have to refuse every block in which a line is not as it says.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal, get_args, get_origin

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from accesslog.record import BUCKETS, SCHEMA_VERSION, Kinds
from compliance.schema import (
    LIMITS,
    LONGEST_QUARANTINED,
    MOST,
    NAMES,
    RECORDS,
    REFUSALS,
    SIGNED,
    TIME,
    UNKNOWN_FIELD,
    Head,
    all_fields,
    arrow_schema,
    decoder,
    fault,
    head_decoder,
    is_text,
    micros_of,
    nullable_fields,
    required_fields,
)

ROWS = arrow_schema().append(pa.field("file", pa.string())).append(pa.field("line", pa.int64()))
"""A line as it is kept: every field of every kind, null where it has none, and its place."""
MALFORMED = pa.schema({"file": pa.string(), "line": pa.int64(), "text": pa.string(), "reason": pa.string()})
"""A line that is no record, as it is kept."""
_LONGEST_FIELD = 100

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Neighbouring lines of one file.

    Args:
        rows: Of lines that are records, in their order, with `ROWS`.
        malformed: All others, with `MALFORMED`.
    """

    rows: pa.Table
    malformed: pa.Table


class LineReader:
    """The reader of one file's lines, block by block.

    Args:
        file: The name that rows have for their file.

    Attributes:
        newer: How often which fields were there that this version does not know.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._strict = StrictReader()
        self._fields = {"kind"}
        """The fields of the blocks so far."""

    @property
    def newer(self) -> Counter[str]:
        """How often which fields were there that this version does not know."""
        return self._strict.newer

    def read(self, data: bytes, first: int) -> LineBlock:
        r"""Read lines, each with its `\n`; `first` is the number of the first."""
        table = self._checked(data)
        if table is None:
            lines = data[:-1].split(b"\n")
            return self._strictly(lines, pa.array(np.arange(first, first + len(lines)), pa.int64()))
        numbers = pa.array(np.arange(first, first + table.num_rows), pa.int64())
        return LineBlock(self._placed(table, numbers), MALFORMED.empty_table())

    def read_each(self, lines: Sequence[bytes], numbers: pa.Array) -> LineBlock:
        """Read lines that have numbers (or none) and may have any bytes in them, line ends too."""
        data = b"".join([line + b"\n" for line in lines])
        table = self._checked(data) if data.count(b"\n") == len(lines) else None
        if table is None:
            return self._strictly(lines, numbers)
        return LineBlock(self._placed(table, numbers), MALFORMED.empty_table())

    def _checked(self, data: bytes) -> pa.Table | None:
        # Arrow takes its time for each field in each line, also where no line has it.
        table = checked_columns(data, self._fields) or checked_columns(data)
        if table is not None:
            self._fields |= {name for name in _COLUMNS.names if table[name].null_count < table.num_rows}
            self._fields.update(*map(_nullable_of, pc.unique(table["kind"]).to_pylist()))
        return table

    def unreadable(self, number: int, reason: str) -> LineBlock:
        """Return a line that cannot be read."""
        row = {"file": self._file, "line": number, "text": "", "reason": reason}
        return LineBlock(ROWS.empty_table(), pa.Table.from_pylist([row], MALFORMED))

    def _strictly(self, lines: Sequence[bytes], numbers: pa.Array) -> LineBlock:
        by_kind, malformed = self._strict.decoded(lines)
        batches = list(self._strict.batches(by_kind))
        places = np.array([place for _, own, _ in batches for place in own], np.int64)
        rows = pa.Table.from_batches([batch for _, _, batch in batches], schema=self._strict.schema)
        in_order = rows.take(pa.array(np.argsort(places)))
        text = [line[: 4 * LONGEST_QUARANTINED].decode(errors="replace") for line in map(lines.__getitem__, malformed)]
        columns = [
            pa.repeat(pa.scalar(self._file, pa.string()), len(malformed)),
            numbers.take(pa.array(malformed, pa.int64())),
            pa.array([shown[:LONGEST_QUARANTINED] for shown in text], pa.string()),
            pa.array([fault(lines[place]) for place in malformed], pa.string()),
        ]
        return LineBlock(
            self._placed(in_order, numbers.take(pa.array(np.sort(places)))),
            pa.Table.from_arrays(columns, schema=MALFORMED),
        )

    def _placed(self, rows: pa.Table, numbers: pa.Array) -> pa.Table:
        file = pa.repeat(pa.scalar(self._file, pa.string()), rows.num_rows)
        return rows.append_column("file", file).append_column("line", numbers)


# ---- in columns

_READ_AS: dict[pa.DataType, pa.DataType] = {TIME: pa.string()}
"""Arrow takes times without a zone, or of a day: as text they are read by the rule."""
_TYPES = all_fields()
_COLUMNS = pa.schema([pa.field(field.name, _READ_AS.get(field.type, field.type)) for field in arrow_schema()])
_BRACE, _QUOTE, _COLON, _END = b'{":\n'


def checked_columns(data: bytes, fields: Collection[str] = _COLUMNS.names) -> pa.Table | None:
    r"""Return the rows of lines that are all records of this version, without their places; None if any is not.

    Args:
        data: Lines, each with its `\n`.
        fields: Those that the lines may have; a line with another one is not taken.
    """
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == _END)
    # A line that is `null` ends the process in Arrow's reader, and an empty line is none to it.
    if not len(ends) or ends[-1] != len(text) - 1 or not (text[np.append(0, ends[:-1] + 1)] == _BRACE).all():
        return None
    if not data.isascii() and not is_text(data):
        return None
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([field for field in _COLUMNS if field.name in fields]),
                unexpected_field_behavior="error",
            ),
        ).combine_chunks()
        columns = [
            table[field.name] if field.name in fields else pa.nulls(table.num_rows, field.type) for field in _COLUMNS
        ]
        table = pa.Table.from_arrays(columns, schema=_COLUMNS)
        is_right = table.num_rows == len(ends) and _keeps_rules(table, data, text, ends)
        return _with_times(table) if is_right else None
    except (pa.ArrowInvalid, *REFUSALS):
        return None


def _keeps_rules(table: pa.Table, data: bytes, text: npt.NDArray[np.uint8], ends: Ints) -> bool:
    kinds = table["kind"].combine_chunks().dictionary_encode()
    names = kinds.dictionary.to_pylist()
    if kinds.null_count or not all(name in Kinds.BY_NAME for name in names):
        return False
    there = _Presence(table, kinds.indices.to_numpy(), names)
    return (
        there.is_right()
        and there.has_nulls_written(data, text, ends)
        and all(_value_rule(name)(table[name]) for name in _TYPES if table[name].null_count < table.num_rows)
    )


class _Presence:
    """Which line has which field."""

    def __init__(self, table: pa.Table, codes: npt.NDArray[np.int32], kinds: list[str]) -> None:
        self._table = table
        self._codes = codes
        self._has, self._must, self._may_be_null = (
            {name: np.array([name in of_kind(kind) for kind in kinds]) for name in _TYPES}
            for of_kind in (_fields_of, _required_of, _nullable_of)
        )

    def is_right(self) -> bool:
        """Return whether each line has the fields that its kind must have, and none of other kinds."""
        count = self._table.num_rows
        for name, has in self._has.items():
            nulls = self._table[name].null_count
            if (nulls == count and not self._must[name].any()) or (nulls == 0 and has.all()):
                continue
            is_valid = self._valid(name)
            if (is_valid & ~has[self._codes]).any() or (~is_valid & self._must[name][self._codes]).any():
                return False
        lacks_burst = [
            self._valid(f"limit_{unit}") & ~self._valid(f"burst_{unit}") & self._has[f"burst_{unit}"][self._codes]
            for unit in ("messages", "bytes")
        ]
        return not any(lacking.any() for lacking in lacks_burst)

    def has_nulls_written(self, data: bytes, text: npt.NDArray[np.uint8], ends: Ints) -> bool:
        """Return whether each field that a kind always has is written where it is null, and no other null is.

        A line has as many keys as it has values and nulls of such fields; and of each such field as many nulls are
        written as there are. A quote within a value has a backslash before it, so no value looks like a key, but for a
        quote and a colon in it, which count as a key too much.
        """
        keys = np.flatnonzero((text[:-1] == _QUOTE) & (text[1:] == _COLON))
        of_line = np.diff(np.searchsorted(keys, ends), prepend=0)
        expected = np.ones(len(ends), np.int64)
        for name in _TYPES:
            nulls = self._table[name].null_count
            may_be_null = self._may_be_null[name]
            if nulls == 0:
                expected += 1
            elif nulls < len(ends):
                expected += self._valid(name)
            if nulls and may_be_null.any():
                are_null = may_be_null[self._codes] & ~self._valid(name)
                expected += are_null
                if data.count(b'"%b":null' % name.encode()) != are_null.sum():
                    return False
        return bool((of_line == expected).all())

    def _valid(self, name: str) -> Bools:
        valid: Bools = self._table[name].is_valid().to_numpy()
        return valid


@cache
def _fields_of(kind: str) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(Kinds.BY_NAME[kind]))


@cache
def _required_of(kind: str) -> frozenset[str]:
    return frozenset(required_fields(kind))


@cache
def _nullable_of(kind: str) -> frozenset[str]:
    return frozenset(nullable_fields(kind))


Rule = Callable[[pa.ChunkedArray], bool]


@cache
def _value_rule(name: str) -> Rule:
    """Return the rule for a column of values, as `schema.strict` has it for one."""
    python_type = _TYPES[name]
    if get_origin(python_type) is Literal:
        words = pa.array(get_args(python_type), pa.string())
        return lambda values: pc.all(pc.is_in(pc.unique(values).drop_null(), words)).as_py() is not False
    most = SCHEMA_VERSION if name == "v" else None if name in NAMES else MOST
    rules: dict[Any, Rule] = {
        int: lambda values: _is_within(values, 0, most),
        float: _are_above_zero if name in LIMITS else _are_finite if name in SIGNED else _are_amounts,
        tuple[int, ...]: _are_histograms,
    }
    return rules.get(python_type, lambda _: True)


def _is_within(values: pa.ChunkedArray, least: float, most: float | None) -> bool:
    bounds = pc.min_max(values).as_py()
    return bool(bounds["min"] >= least and (most is None or bounds["max"] <= most))


def _are_finite(values: pa.ChunkedArray) -> bool:
    # Any that is not makes the sum none; so may large ones, which the strict reader then takes.
    return bool(np.isfinite(pc.sum(values).as_py()))


def _are_amounts(values: pa.ChunkedArray) -> bool:
    return _are_finite(values) and _is_within(values, 0, None)


def _are_above_zero(values: pa.ChunkedArray) -> bool:
    return _are_finite(values) and bool(pc.min(values).as_py() > 0)


def _are_histograms(values: pa.ChunkedArray) -> bool:
    counts = pc.list_flatten(values)
    is_short = pc.max(pc.list_value_length(values)).as_py() <= BUCKETS
    return is_short and not counts.null_count and (not len(counts) or _is_within(counts, 0, MOST))


def _with_times(table: pa.Table) -> pa.Table:
    for place, name in enumerate(table.column_names):
        if _TYPES.get(name) is datetime:
            # Lines of one second have the same times.
            written = table[name].combine_chunks().dictionary_encode()
            times = pa.array([micros_of(text) for text in written.dictionary.to_pylist()], pa.int64())
            table = table.set_column(place, name, times.take(written.indices).cast(TIME))
    return table


# ---- line by line

Malformed = list[int]
"""Places of lines that are no records, in the list given."""


class StrictReader:
    """Decodes lines of all kinds one by one.

    Of lines that a newer proxy wrote, what this version does not know is passed over: a field, or all but the head of a
    line of another kind or version. Such a line is kept under its kind, with its version if that is newer.

    Attributes:
        schema: Of the batches that it returns.
        newer: How often which fields were there that this version does not know.
    """

    def __init__(self) -> None:
        self._decode: Callable[[bytes], Any] = decoder().decode
        self._decode_leniently: Callable[[bytes], Any] = decoder(is_lenient=True).decode
        self._decode_head = head_decoder().decode
        self.schema = arrow_schema()
        self.newer: Counter[str] = Counter()

    def decoded(self, lines: Sequence[bytes]) -> tuple[dict[str, tuple[list[int], list[Any]]], Malformed]:
        """Decode lines: of each kind the places and contents, and the places of lines that are no records."""
        by_kind: dict[str, tuple[list[int], list[Any]]] = {kind: ([], []) for kind in RECORDS}
        of_type = {RECORDS[kind]: (places.append, values.append) for kind, (places, values) in by_kind.items()}
        malformed: Malformed = []
        # The decoder skips unknown fields, whatever their bytes. Whole lines begin and end in ASCII, so none
        # can lend another the rest of a character.
        are_text = is_text(b"".join(lines))
        decode, values_of = self._decode, msgspec.structs.astuple
        for place, line in enumerate(lines):
            try:
                record = decode(line)
            except REFUSALS as error:
                kind, record = self._newer(line, error)
                if record is None or (not are_text and not is_text(line)):
                    malformed.append(place)
                    continue
                places, values = by_kind.setdefault(kind, ([], []))
                places.append(place)
                values.append(values_of(record))
                continue
            if not are_text and not is_text(line):
                malformed.append(place)
                continue
            add_place, add_values = of_type[type(record)]
            add_place(place)
            add_values(values_of(record))
        return {kind: both for kind, both in by_kind.items() if both[0]}, malformed

    def _newer(self, line: bytes, error: Exception) -> tuple[str, Any]:
        """Kind and record of a line that a newer proxy may have written; None if it is malformed."""
        if unknown := UNKNOWN_FIELD.match(str(error)):
            try:
                record = self._decode_leniently(line)
            except REFUSALS:
                return "", None
            kind = str(record.__struct_config__.tag)
            self.newer[f"{kind}.{unknown[1][:_LONGEST_FIELD]}"] += 1
            return kind, record
        try:
            head = self._decode_head(line)
        except REFUSALS:
            return "", None
        if head.v > SCHEMA_VERSION:
            return f"{head.kind} (version {head.v})", head
        return (head.kind, head) if head.kind not in RECORDS else ("", None)

    def batches(
        self, by_kind: dict[str, tuple[list[int], list[Any]]]
    ) -> Iterator[tuple[str, list[int], pa.RecordBatch]]:
        """Yield the result of `decoded` as rows, kind by kind, with their places."""
        for kind, (places, records) in by_kind.items():
            count = len(places)
            fields = RECORDS.get(kind, Head).__struct_fields__
            columns = dict(zip(fields, zip(*records, strict=True), strict=True))
            arrays = [
                pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
                for field in self.schema
            ]
            arrays[0] = pa.array([kind] * count, pa.string())
            yield kind, places, pa.RecordBatch.from_arrays(arrays, schema=self.schema)
