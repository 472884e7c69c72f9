"""Calls over many values, in pieces.

A thread that computes lets the event loop go on between two steps of Python. A call of C is one step: the loop waits
for the end of `sorted` over 100,000 names, and of freeing a table of as many. These functions do the same in pieces.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

PIECE = 2_000
"""Values in one call of C: at most some milliseconds."""
T = TypeVar("T")
K = TypeVar("K")


def in_pieces(values: Iterable[T]) -> Iterator[list[T]]:
    """Yield the values in lists of up to `PIECE`."""
    rest = iter(values)
    while piece := list(islice(rest, PIECE)):
        yield piece


def in_order(values: Iterable[T]) -> Iterator[T]:
    """Yield the values as `sorted` returns them."""
    return heapq.merge(*(sorted(piece) for piece in in_pieces(values)))  # type: ignore[type-var]


def keys_of(one: Mapping[K, Any], other: Mapping[K, Any]) -> Iterator[K]:
    """Yield each key of either table once."""
    yield from one
    for key in other:
        if key not in one:
            yield key


def let_go(tree: Any) -> None:
    """Empty nested dicts and lists piece by piece, so that other threads run in between.

    They must not be used any more.
    """
    if isinstance(tree, dict):
        while tree:
            let_go(tree.popitem()[1])
    elif isinstance(tree, list):
        while tree:
            let_go(tree.pop())
