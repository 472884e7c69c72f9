"""Calls over many values, in pieces.

A thread that computes lets the event loop go on between two steps of Python. A call of C is one step: the loop waits
for the end of `sorted` over 100,000 names, and of freeing a table of as many. These functions do the same in pieces.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from itertools import islice
from threading import Event
from typing import Any, TypeVar

PIECE = 2_000
"""Values in one call of C: at most some milliseconds."""
T = TypeVar("T")
K = TypeVar("K")


class AbandonedError(Exception):
    """Work in a thread is not needed any more, as the process ends."""


_ENDING: ContextVar[Event | None] = ContextVar("ending", default=None)


async def in_thread(ending: Event, work: Callable[..., T], *args: Any) -> T:
    """Run `work` in a thread; once `ending` is set, its next piece raises AbandonedError, and work of one piece ends.

    A thread cannot be cancelled, and the process would wait for its end.
    """
    token = _ENDING.set(ending)
    try:
        return await asyncio.to_thread(work, *args)
    finally:
        _ENDING.reset(token)


def check_wanted() -> None:
    """Check that the work of this thread is still needed.

    Raises:
        AbandonedError: If it is not.
    """
    ending = _ENDING.get()
    if ending is not None and ending.is_set():
        raise AbandonedError("the proxy ends, and nothing has changed")


def in_pieces(values: Iterable[T]) -> Iterator[list[T]]:
    """Yield the values in lists of up to `PIECE`.

    Raises:
        AbandonedError: If there are several pieces, and this thread's work is not needed any more.
    """
    rest = iter(values)
    piece = list(islice(rest, PIECE))
    while piece:
        yield piece
        piece = list(islice(rest, PIECE))
        if piece:
            check_wanted()


def in_order(values: Iterable[T]) -> Iterator[T]:
    """Yield the values as `sorted` returns them."""
    return heapq.merge(*(sorted(piece) for piece in in_pieces(values)))  # type: ignore[type-var]


def keys_of(table: Mapping[K, Any], other: Mapping[K, Any]) -> Iterator[K]:
    """Yield each key of either table once."""
    yield from table
    for key in other:
        if key not in table:
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
