"""Publishes that the broker has and has not answered yet, counted for each connection.

Pulsar: maxPendingPublishRequestsPerConnection.
"""

from collections.abc import Callable

from protocol.pieces import Tally
from protocol.pulsar_pb2 import BaseCommand
from protocol.walk import read_command
from proxy.budgets import Budget

CommandHandler = Callable[[int, bytes, bytes], bytes | None]
"""(type, BaseCommand, whole frame) to the frame that goes on: the same, another, or None."""

_ANSWERS = frozenset({BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR})


class PendingPublishes:
    """Counts what passes and what is answered, by producer: a closing producer takes what is never answered with it.

    Reading stops when `most` whole entries are pending, exactly, and goes on at half of it. An entry counts when all
    of it has passed: the broker cannot answer half of one, so to stop inside of it would be to stop for ever. Of a
    chunk that passes uncut the one at its end counts at once: `has_room` has left it room to end. What is held already
    passes at its limit's pace all the same, and counts.

    Args:
        most: Entries.
        turned: Called with True when reading is to stop, and with False when it may go on.
    """

    def __init__(self, most: int, turned: Callable[[bool], None]) -> None:
        self._budget = Budget(most, turned)
        self._by_producer: dict[int, int] = {}
        self._under_way: int | None = None

    @property
    def count(self) -> int:
        """How many are pending."""
        return self._budget.used

    def has_room(self, tallies: list[Tally], *, ends_mid_frame: bool) -> bool:
        """Whether a chunk may pass uncut: reading need not stop inside of it, nor at an end inside a frame."""
        more = sum(tally.entries for tally in tallies) + (self._under_way is not None)
        return self.count + more + ends_mid_frame <= self._budget.limit

    def passed_uncut(self, tallies: list[Tally]) -> None:
        """A chunk that has room passed; an entry at its end may go on in the next one, and counts already."""
        self.ended()
        for tally in tallies:
            self.passed(tally.owner, tally.entries)

    def passing(self, producer: int, *, whole: bool) -> None:
        """An entry passed, or the first part of one; for that `ended` will be told."""
        if whole:
            self.passed(producer, 1)
        else:
            self._under_way = producer

    def ended(self) -> None:
        """The end of a frame passed, be it of an entry or of anything."""
        if self._under_way is not None:
            producer, self._under_way = self._under_way, None
            self.passed(producer, 1)

    def passed(self, producer: int, entries: int) -> None:
        """So many whole entries passed."""
        self._by_producer[producer] = self._by_producer.get(producer, 0) + entries
        self._budget.take(entries)

    def answered(self, producer: int, entries: int) -> None:
        """So many were answered. Answers that nobody waits for, as of a producer that was closed, do not count."""
        pending = self._by_producer.get(producer, 0)
        entries = min(entries, pending)
        if entries == 0:
            return
        if entries == pending:
            del self._by_producer[producer]
        else:
            self._by_producer[producer] = pending - entries
        self._budget.give(entries)

    def answered_in_chunk(self, receipts: list[Tally]) -> None:
        """These receipts passed with a chunk that was not cut."""
        for tally in receipts:
            self.answered(tally.owner, tally.entries)

    def closed(self, producer: int) -> None:
        """The producer is over; what it has pending will not be answered, or need not be waited for."""
        if self._under_way == producer:
            self._under_way = None
        self.answered(producer, self._by_producer.get(producer, 0))

    def hearing(self, handle: CommandHandler) -> CommandHandler:
        """A handler of the broker's commands that sees the answers among them, before `handle` does."""

        def heard(kind: int, command: bytes, frame: bytes) -> bytes | None:
            if kind in _ANSWERS:
                _kind, producer, _sequence = read_command(command, 0, len(command), kind)
                self.answered(producer, 1)
            return handle(kind, command, frame)

        return heard
