"""Lines in, Arrow columns out: for lines of all kinds the same wide row, as Spark keeps it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from compliance.schema import arrow_schema
from compliance.strict import RECORDS, REFUSALS, decoder, is_text

Malformed = list[int]
"""Places of lines that are no records, in what was given."""


class Columns:
    """Decodes lines of all kinds.

    Attributes:
        schema: Of what it gives.
    """

    def __init__(self) -> None:
        self._decode: Callable[[bytes], Any] = decoder().decode
        self.schema = arrow_schema()

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
            except REFUSALS:
                malformed.append(place)
                continue
            if not are_text and not is_text(line):
                malformed.append(place)
                continue
            add_place, add_values = of_type[type(record)]
            add_place(place)
            add_values(values_of(record))
        return {kind: both for kind, both in found.items() if both[0]}, malformed

    def batches(self, found: dict[str, tuple[list[int], list[Any]]]) -> Iterator[tuple[str, list[int], pa.RecordBatch]]:
        """What `decoded` found as rows, kind by kind, with their places."""
        for kind, (places, records) in found.items():
            count = len(places)
            columns = dict(zip(RECORDS[kind].__struct_fields__, zip(*records, strict=True), strict=True))
            arrays = [
                pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
                for field in self.schema
            ]
            arrays[0] = pa.array([kind] * count, pa.string())
            yield kind, places, pa.RecordBatch.from_arrays(arrays, schema=self.schema)
