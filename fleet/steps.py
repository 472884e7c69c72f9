"""Work that grows with the number of limits, in steps: the caller decides how many it does before it does others' work.

A generator of steps yields after each and returns the result. Its caller does all steps before it calls the same member
or coordinator again, except to read.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work with a result."""

PER_STEP: Final = 10
"""Limits in one step, where each takes a few microseconds."""


def in_parts(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists of `PER_STEP`."""
    rest = iter(items)
    while part := list(islice(rest, PER_STEP)):
        yield part


def paid(items: int) -> Steps[None]:
    """Yield one step, and one more for each `PER_STEP` items that the caller has gone through besides."""
    for _ in range(1 + items // PER_STEP):
        yield


def finished(steps: Steps[T]) -> T:
    """Do all steps at once, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
