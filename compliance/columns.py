"""Lines in, Arrow columns out: for lines of all kinds the same wide row, as Spark keeps it."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from accesslog.record import SCHEMA_VERSION
from compliance.schema import arrow_schema
from compliance.strict import RECORDS, REFUSALS, UNKNOWN_FIELD, Head, decoder, head_decoder, is_text

_LONGEST_NAMED = 100
Malformed = list[int]
"""Places of lines that are no records, in what was given."""


class Columns:
    """Decodes lines of all kinds.

    Of lines that a newer proxy wrote, what this version does not know is passed over: a field, or all but the head of a
    line of another kind or version. Such a line is kept under its kind, with its version if that is newer.

    Attributes:
        schema: Of what it gives.
        newer: How often which fields were there that this version does not know.
    """

    def __init__(self) -> None:
        self._decode: Callable[[bytes], Any] = decoder().decode
        self._decode_leniently: Callable[[bytes], Any] = decoder(is_lenient=True).decode
        self._decode_head = head_decoder().decode
        self.schema = arrow_schema()
        self.newer: Counter[str] = Counter()

    def decoded(self, lines: Sequence[bytes]) -> tuple[dict[str, tuple[list[int], list[Any]]], Malformed]:
        """Of each kind where its lines stand and what they hold; and where those stand that are no records."""
        found: dict[str, tuple[list[int], list[Any]]] = {kind: ([], []) for kind in RECORDS}
        of_type = {RECORDS[kind]: (places.append, values.append) for kind, (places, values) in found.items()}
        malformed: Malformed = []
        # The decoder passes over what it does not know, whatever that is. Whole lines begin and end in ASCII, so none
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
                places, values = found.setdefault(kind, ([], []))
                places.append(place)
                values.append(values_of(record))
                continue
            if not are_text and not is_text(line):
                malformed.append(place)
                continue
            add_place, add_values = of_type[type(record)]
            add_place(place)
            add_values(values_of(record))
        return {kind: both for kind, both in found.items() if both[0]}, malformed

    def _newer(self, line: bytes, error: Exception) -> tuple[str, Any]:
        """Kind and record of a line that a newer proxy may have written; None if it is malformed."""
        if unknown := UNKNOWN_FIELD.match(str(error)):
            try:
                record = self._decode_leniently(line)
            except REFUSALS:
                return "", None
            kind = str(record.__struct_config__.tag)
            self.newer[f"{kind}.{unknown[1][:_LONGEST_NAMED]}"] += 1
            return kind, record
        try:
            head = self._decode_head(line)
        except REFUSALS:
            return "", None
        if head.v > SCHEMA_VERSION:
            return f"{head.kind} (version {head.v})", head
        return (head.kind, head) if head.kind not in RECORDS else ("", None)

    def batches(self, found: dict[str, tuple[list[int], list[Any]]]) -> Iterator[tuple[str, list[int], pa.RecordBatch]]:
        """What `decoded` found as rows, kind by kind, with their places."""
        for kind, (places, records) in found.items():
            count = len(places)
            fields = RECORDS.get(kind, Head).__struct_fields__
            columns = dict(zip(fields, zip(*records, strict=True), strict=True))
            arrays = [
                pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
                for field in self.schema
            ]
            arrays[0] = pa.array([kind] * count, pa.string())
            yield kind, places, pa.RecordBatch.from_arrays(arrays, schema=self.schema)
