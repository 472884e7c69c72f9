"""One subscription: who gets which entry, and when. Pure decisions; an Outlet carries them out."""

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from loadgen.standin.consumer import Consumer, Delivery
from loadgen.standin.cursor import Cursor
from loadgen.standin.entry import Entry
from loadgen.standin.entry_log import EntryLog
from loadgen.standin.refusal import Refused
from loadgen.standin.selection import KeyHash, RoundRobin, Selection, SingleActive
from protocol.pulsar_pb2 import CommandSubscribe, ServerError

LOOK_AHEAD = 1000
"""Entries that a Key_Shared subscription passes over at most for those that somebody can take."""


class Subscription:
    """A cursor on a topic's log and the consumers that share it.

    Entries go out only against permits and only to connections that take them. An entry with a
    consumer is *pending* until it is acknowledged, or due again: by request or because its consumer
    left. Due entries go before new ones, the oldest first.

    Args:
        log: The topic's entries.
        position: Entry id to start at.
        partition: The topic's partition, -1 where it is none.
        wake: Called when there may be something to dispatch.
    """

    def __init__(self, log: EntryLog, position: int, partition: int, wake: Callable[["Subscription"], None]) -> None:
        self.cursor = Cursor(position)
        self.consumers: list[Consumer] = []
        self._log = log
        self._partition = partition
        self._wake = wake
        self._type = CommandSubscribe.Exclusive
        self._selection: Selection = SingleActive(partition)
        self._active: Consumer | None = None
        self._read_position = position
        self._due: list[int] = []
        self._passed_over: list[int] = []
        self._retry = True
        self._pending: dict[int, Consumer] = {}
        self._redeliveries: dict[int, int] = {}

    # ---- Consumers come and go

    def add(self, consumer: Consumer, sub_type: CommandSubscribe.SubType) -> None:
        """Let a consumer join.

        Raises:
            Refused: ConsumerBusy if the subscription is taken, or of another type just now.
        """
        if not self.consumers:
            self._type = sub_type
            self._selection = _selection_for(sub_type, self._partition)
        elif sub_type != self._type:
            raise Refused(ServerError.ConsumerBusy, "the subscription has consumers of another type")
        elif sub_type == CommandSubscribe.Exclusive:
            raise Refused(ServerError.ConsumerBusy, "the Exclusive subscription has its consumer already")
        self.consumers.append(consumer)
        self._change_active()

    def remove(self, consumer: Consumer) -> None:
        """A consumer is gone; what was pending with it is due again."""
        self.consumers.remove(consumer)
        self._make_due(self._pending_with(consumer))
        self._change_active()

    def _change_active(self) -> None:
        if isinstance(self._selection, SingleActive):
            former, self._active = self._active, self._selection.active(self.consumers)
            if former is not None and former is not self._active:
                self._make_due(self._pending_with(former))
        self._try_again()

    # ---- What consumers ask

    def flow(self, consumer: Consumer, permits: int) -> None:
        """The consumer takes `permits` more messages."""
        consumer.permits += permits
        self.resume(consumer)

    def resume(self, consumer: Consumer) -> None:
        """The consumer may be ready again."""
        self._retry = self._retry or self._selection.waits_for(consumer)
        self.wake()

    def acknowledge(self, entry_id: int, ack_set: Sequence[int] = ()) -> None:
        """One entry is done, or with an ack set the part of it whose bits are clear."""
        if not 0 <= entry_id < self._log.next_id or self.cursor.is_acknowledged(entry_id):
            return
        if ack_set and not self.cursor.acknowledge_in_part(entry_id, ack_set):
            return
        self.cursor.acknowledge(entry_id)
        self._forget(entry_id)

    def acknowledge_up_to(self, entry_id: int, ack_set: Sequence[int] = ()) -> None:
        """All entries before this one are done, and this one as far as the ack set says."""
        end = min(entry_id + (0 if ack_set else 1), self._log.next_id)
        for done in range(self.cursor.position, end):
            self._forget(done)
        self.cursor.acknowledge_below(end)
        if ack_set:
            self.acknowledge(entry_id, ack_set)

    def redeliver(self, consumer: Consumer, entry_ids: Iterable[int]) -> None:
        """Entries pending with the consumer are due again; without ids, all of them.

        Exclusive and Failover give all back whichever are named, or order would be lost.
        """
        asked = set(entry_ids)
        theirs = {entry_id for entry_id in asked if self._pending.get(entry_id) is consumer}
        for entry_id in theirs if asked else self._pending_with(consumer):
            self._redeliveries[entry_id] = self._redeliveries.get(entry_id, 0) + 1
        if theirs and self._type in {CommandSubscribe.Shared, CommandSubscribe.Key_Shared}:
            self._make_due(theirs)
        elif theirs or not asked:
            self._make_due(self._pending_with(consumer))
        self._try_again()

    def reset(self, position: int) -> None:
        """Read on from `position`; what was acknowledged or pending from there on is forgotten."""
        for entry_id in self._pending:
            self._selection.released(entry_id)
        self._pending.clear()
        self._redeliveries.clear()
        self._due.clear()
        self._passed_over.clear()
        self.cursor.reset(position)
        self._read_position = position
        self._try_again()

    # ---- Dispatch

    def wake(self) -> None:
        """Ask for a round of dispatching."""
        self._wake(self)

    def _try_again(self) -> None:
        """Something changed that may let entries go that were passed over."""
        self._retry = True
        self.wake()

    def dispatch(self) -> None:
        """Deliver what can be delivered now."""
        self._tell_active()
        if self._retry:
            self._retry = False
            self._selection.begin(self.consumers)
            for entry_id in self._passed_over:
                heappush(self._due, entry_id)
            self._passed_over.clear()
        while len(self._passed_over) < LOOK_AHEAD and any(consumer.is_ready for consumer in self.consumers):
            if not self._dispatch_some():
                break

    def _dispatch_some(self) -> bool:
        """Deliver entries until one cannot be; the answer is whether looking further may help."""
        while (entry := self._next_entry()) is not None:
            consumer = self._selection.pick(entry)
            if consumer is None and self._selection.may_skip:
                self._passed_over.append(entry.entry_id)
                return True
            if consumer is None:
                heappush(self._due, entry.entry_id)
                return False
            self._deliver(entry, consumer)
        return False

    def _next_entry(self) -> Entry | None:
        while self._due:
            entry = self._log.get(heappop(self._due))
            if entry is not None and not self.cursor.is_acknowledged(entry.entry_id):
                return entry
        self._read_position = max(self._read_position, self._log.first_id)
        while (entry := self._log.get(self._read_position)) is not None:
            self._read_position += 1
            if not self.cursor.is_acknowledged(entry.entry_id):
                return entry
        return None

    def _deliver(self, entry: Entry, consumer: Consumer) -> None:
        self._pending[entry.entry_id] = consumer
        self._selection.delivered(entry, consumer)
        consumer.permits -= entry.messages
        count = self._redeliveries.get(entry.entry_id, 0)
        consumer.outlet.deliver(consumer, Delivery(entry, count, self.cursor.open_in_batch(entry.entry_id)))

    def _tell_active(self) -> None:
        if self._type != CommandSubscribe.Failover:
            return
        for consumer in self.consumers:
            is_active = consumer is self._active
            if consumer.told_active is not is_active:
                consumer.told_active = is_active
                consumer.outlet.tell_active(consumer, is_active=is_active)

    # ---- Pending entries

    def _pending_with(self, consumer: Consumer) -> list[int]:
        return [entry_id for entry_id, holder in self._pending.items() if holder is consumer]

    def _make_due(self, entry_ids: Iterable[int]) -> None:
        for entry_id in entry_ids:
            del self._pending[entry_id]
            self._selection.released(entry_id)
            heappush(self._due, entry_id)

    def _forget(self, entry_id: int) -> None:
        self._redeliveries.pop(entry_id, None)
        if self._pending.pop(entry_id, None) is not None and self._selection.released(entry_id):
            self._try_again()


def _selection_for(sub_type: CommandSubscribe.SubType, partition: int) -> Selection:
    if sub_type == CommandSubscribe.Shared:
        return RoundRobin()
    if sub_type == CommandSubscribe.Key_Shared:
        return KeyHash()
    return SingleActive(partition)
