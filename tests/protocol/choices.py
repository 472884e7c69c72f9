"""Test cases out of rows of bytes.

Drawing each part of a case from a strategy of its own costs milliseconds, and bugs in a parser hide in the
ten-thousandth case. So a case is built by a plain function that takes its choices from one row of bytes: hypothesis
draws that row and makes it smaller when a check fails; `in_bulk` goes through thousands of seeded rows.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from tests.examples import examples

T = TypeVar("T")
Check = Callable[["Choices"], None]

EDGES = [0, 1, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**32 + 100, 2**63 - 1, 2**63, 2**63 + 7, 2**64 - 100, 2**64 - 1]


class Choices:
    """Makes choices one after the other; when the row is at its end, always the first one."""

    def __init__(self, row: bytes) -> None:
        self._row = row
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._row[self._at : self._at + count]
        self._at += count
        return taken + bytes(count - len(taken))

    def below(self, limit: int) -> int:
        return int.from_bytes(self.take(1 if limit <= 256 else 4)) % limit

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, of: int) -> bool:
        """True once in `of` times, never when the row is at its end."""
        return self.below(of) == of - 1

    def number(self) -> int:
        """A number of 64 bits: small, at an edge, or any."""
        kind = self.below(4)
        if kind < 2:
            return self.below(256)
        return self.one_of(EDGES) if kind == 2 else int.from_bytes(self.take(8))

    def octets(self, most: int) -> bytes:
        return self.take(self.below(most + 1))

    def shuffled(self, items: Sequence[T]) -> list[T]:
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]


def choices(size: int = 300) -> st.SearchStrategy[Choices]:
    return st.binary(min_size=size, max_size=size).map(Choices)


def in_bulk(check: Check, count: int, size: int = 300) -> None:
    """Check `count` cases, fewer of the sources of what is compiled (`tests.examples`); the same ones on every run."""
    for seed in range(examples(count)):
        try:
            check(Choices(Random(seed).randbytes(size)))
        except BaseException as error:
            error.add_note(f"the row was Random({seed}).randbytes({size}): @example(Choices(…)) to look into it")
            raise
