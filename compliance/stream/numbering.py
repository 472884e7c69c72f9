"""The number of each line in its file, though Spark cuts files into blocks and reads these side by side.

A block's lines come one after the other to the task that reads it. How many lines stand above a block is known when all
are read; so what is not a file's first block is read again then (`reading.py`). Blocks are larger than the files that
the proxy writes.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compliance.stream.piece import Block


class Numbering:
    """Numbers lines, from 1, as they come.

    Args:
        above: Of blocks how many lines stand above them; of others it is none.

    Attributes:
        lines: Of each block how many lines have come.
    """

    def __init__(self, above: Mapping[Block, int]) -> None:
        self._above = above
        self.lines: dict[Block, int] = {}

    def numbers(self, batch: pa.RecordBatch) -> pa.Array:
        """Of lines with `file` and `block`, their numbers; lines that have their own number (`line`) keep it."""
        if "line" in batch.schema.names:
            return batch["line"]
        found = np.empty(batch.num_rows, np.int64)
        for first, behind in _runs(batch):
            block = batch["file"][first].as_py(), batch["block"][first].as_py()
            before = self.lines.get(block, 0)
            self.lines[block] = before + behind - first
            found[first:behind] = np.arange(behind - first) + (self._above.get(block, 0) + before + 1)
        return pa.array(found)


def above(blocks: Iterable[tuple[Block, int]]) -> dict[Block, int]:
    """Of each block how many lines stand above it, given the lines of every one."""
    found, last, lines_above = {}, "", 0
    for (file, begin), lines in sorted(blocks):
        if file != last:
            last, lines_above = file, 0
        found[file, begin] = lines_above
        lines_above += lines
    return found


def _runs(batch: pa.RecordBatch) -> Iterable[tuple[int, int]]:
    """First and behind of lines of one block that stand together."""
    file: npt.NDArray[np.int32] = batch["file"].dictionary_encode().indices.to_numpy()
    block = batch["block"].to_numpy()
    begins = np.flatnonzero((np.diff(file) != 0) | (np.diff(block) != 0)) + 1
    bounds = [0, *begins.tolist(), batch.num_rows] if batch.num_rows else []
    return pairwise(bounds)
