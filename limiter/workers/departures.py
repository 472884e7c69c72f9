"""What was released and has not left its worker yet, as far as is known.

A released entry counts as lent: between this decision and the moment that the entry leaves some time passes, and in
that moment it counts (`TokenBucket.lend`).
"""

from collections.abc import Iterable

from limiter.limiter import Limiter
from limiter.workers.letters import Batch


class Departures:
    """Those of one worker, in batches that it confirms."""

    def __init__(self) -> None:
        self._going: dict[Limiter, list[int]] = {}
        self._unconfirmed: dict[int, dict[Limiter, list[int]]] = {}
        self._batch = 0

    @property
    def is_any(self) -> bool:
        """Whether there are some."""
        return bool(self._going or self._unconfirmed)

    def add(self, limiters: Iterable[Limiter], messages: int, size: int) -> None:
        """An entry that was charged to these is told to go."""
        for limiter in limiters:
            limiter.release(messages, size)
            going = self._going.setdefault(limiter, [0, 0])
            going[0] += messages
            going[1] += size

    def batch(self) -> Batch | None:
        """What was released since the last one is to be confirmed under this number; None if nothing was."""
        if not self._going:
            return None
        self._batch += 1
        self._unconfirmed[self._batch], self._going = self._going, {}
        return Batch(self._batch)

    def confirmed(self, batch: int, now: int) -> None:
        """All of a batch has gone on, or never will."""
        _gone(self._unconfirmed.pop(batch, {}), now)

    def lose(self, now: int) -> None:
        """The worker is no more: nothing of it goes on later than now."""
        for batch in [*self._unconfirmed.values(), self._going]:
            _gone(batch, now)
        self._unconfirmed.clear()
        self._going = {}


def _gone(batch: dict[Limiter, list[int]], now: int) -> None:
    for limiter, (messages, size) in batch.items():
        limiter.gone(messages, size, now)
