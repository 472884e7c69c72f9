"""Which lines of each run have been seen, as ranges of sequence numbers: what is twice, and what is missing.

A run without gaps is one range, however long it is; so duplicates are found for ever, without keeping every number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compliance.schema import BOOT

Longs = npt.NDArray[np.int64]
Run = tuple[str, str]
"""A proxy, and which of its runs."""
SCHEMA = pa.schema(
    dict.fromkeys(BOOT, pa.string()) | dict.fromkeys(("from_seq", "to_seq"), pa.int64()),
)
GAPS = pa.schema(dict.fromkeys(BOOT, pa.string()) | dict.fromkeys(("after_seq", "missing"), pa.int64()))
_NONE: Longs = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class Gap:
    """Consecutive numbers that are missing.

    Args:
        run: Whose.
        after_seq: The last before them; -1 where there is none.
        missing: How many.
    """

    run: Run
    after_seq: int
    missing: int


class Seen:
    """Numbers that have been seen.

    Args:
        ranges: Of each run first and last of each range, both within it; ascending, with something missing between.
    """

    def __init__(self, ranges: Mapping[Run, Longs] | None = None) -> None:
        self.ranges = dict(ranges or {})

    def added(self, run: Run, numbers: Longs) -> npt.NDArray[np.bool_]:
        """Adds numbers; which of them were new. Of copies among them the first one is."""
        before = self.ranges.get(run, _NONE)
        is_new = np.zeros(len(numbers), np.bool_)
        distinct, first = np.unique(numbers, return_index=True)
        is_new[first] = ~_within(before, distinct)
        self.ranges[run] = _union(before, _ranges_of(distinct))
        return is_new

    def union(self, *others: "Seen") -> "Seen":
        """What one of them has seen."""
        together: dict[Run, list[Longs]] = {}
        for seen in (self, *others):
            for run, ranges in seen.ranges.items():
                together.setdefault(run, []).append(ranges)
        return Seen({run: _union(*parts) for run, parts in together.items()})

    def there(self, run: Run | None = None) -> int:
        """How many numbers there are, of a run or in all."""
        return sum(self._there(one) for one in self._runs(run))

    def missing(self, run: Run | None = None) -> int:
        """How many are missing below the largest of each run."""
        return sum(int(self.ranges[one][-1, 1]) + 1 - self._there(one) for one in self._runs(run))

    def gaps(self) -> Iterator[Gap]:
        """What is missing, run by run, in order."""
        for run in sorted(self.ranges):
            after = -1
            for first, last in self.ranges[run].tolist():
                if first - after > 1:
                    yield Gap(run, after, first - after - 1)
                after = last

    def table(self) -> pa.Table:
        """As it is kept."""
        ranges = [self.ranges[run] for run in sorted(self.ranges)]
        runs = [run for run in sorted(self.ranges) for _ in self.ranges[run]]
        both = np.concatenate([_NONE, *ranges])
        columns = [*([run[at] for run in runs] for at in range(2)), both[:, 0], both[:, 1]]
        return pa.table(columns, schema=SCHEMA)

    @staticmethod
    def of(kept: pa.Table) -> "Seen":
        """What `table` gave."""
        together: dict[Run, list[tuple[int, int]]] = {}
        for proxy, boot, first, last in zip(*(kept[name].to_pylist() for name in SCHEMA.names), strict=True):
            together.setdefault((proxy, boot), []).append((first, last))
        return Seen({run: np.array(ranges, np.int64) for run, ranges in together.items()})

    def _runs(self, run: Run | None) -> list[Run]:
        return [one for one in (self.ranges if run is None else [run]) if len(self.ranges.get(one, _NONE))]

    def _there(self, run: Run) -> int:
        return sum(last - first + 1 for first, last in self.ranges[run].tolist())


def gap_table(seen: Seen) -> pa.Table:
    """All gaps, as they are kept."""
    return table_of_rows([(*gap.run, gap.after_seq, gap.missing) for gap in seen.gaps()], GAPS)


def table_of_rows(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """Rows as a table, be there any or none."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _ranges_of(distinct: Longs) -> Longs:
    """Of ascending numbers."""
    begins = np.flatnonzero(np.diff(distinct, prepend=distinct[:1] - 2) > 1)
    ends = np.append(begins[1:] - 1, len(distinct) - 1)[: len(begins)]
    return np.stack([distinct[begins], distinct[ends]], axis=1)


def _within(ranges: Longs, numbers: Longs) -> npt.NDArray[np.bool_]:
    if not len(ranges):
        return np.zeros(len(numbers), np.bool_)
    at = np.searchsorted(ranges[:, 0], numbers, side="right") - 1
    found: npt.NDArray[np.bool_] = (at >= 0) & (numbers <= ranges[np.maximum(at, 0), 1])
    return found


def _union(*many: Longs) -> Longs:
    """Ranges that overlap or touch become one."""
    ranges = np.concatenate(many)
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    highest = np.maximum.accumulate(ranges[:, 1])
    # Less one, and not one more: the largest number has none behind it.
    begins = np.flatnonzero(np.concatenate([[True], ranges[1:, 0] - 1 > highest[:-1]])[: len(ranges)])
    ends = np.append(begins[1:] - 1, len(ranges) - 1)[: len(begins)]
    return np.stack([ranges[begins, 0], highest[ends]], axis=1)
