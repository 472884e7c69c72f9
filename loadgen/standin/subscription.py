"""A subscription's decisions: which consumer gets which entry, and when. An Outlet carries them out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from loadgen.standin.entry_log import KEY_SLOTS, Cursor, EntryLog, StandinRefusal, StoredEntry
from protocol.pulsar_pb2 import CommandSubscribe, ServerError


@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry on its way to one consumer."""

    entry: StoredEntry
    redelivery_count: int
    ack_set: tuple[int, ...]


class Outlet(Protocol):
    """The connection behind a consumer. Its calls come in order and never raise."""

    @property
    def writable(self) -> bool:
        """True if the connection takes more deliveries now."""
        ...

    def deliver(self, consumer: "Consumer", delivery: Delivery) -> None:
        """Send a MESSAGE."""
        ...

    def tell_active(self, consumer: "Consumer", *, is_active: bool) -> None:
        """Send an ACTIVE_CONSUMER_CHANGE."""
        ...

    def send_away(self, consumer: "Consumer") -> None:
        """The broker ended this consumer: send a CLOSE_CONSUMER without a request."""
        ...


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer and the permits that it has given.

    `permits` are messages; a batch may take them below zero. `key_ranges` are the key slots that a
    sticky Key_Shared consumer claimed, both ends included; empty where slots are shared out.
    """

    consumer_id: int
    outlet: Outlet
    epoch: int | None = None
    key_ranges: tuple[tuple[int, int], ...] = ()
    permits: int = 0
    told_active: bool | None = None

    @property
    def is_ready(self) -> bool:
        """True if an entry may be delivered now."""
        return self.permits > 0 and self.outlet.writable


class Selection(Protocol):
    """Chooses among consumers, in their order of joining."""

    may_skip: bool
    """Whether an entry that no consumer can take now lets later ones pass."""

    def begin(self, consumers: list[Consumer]) -> None:
        """Take these consumers from now on, and try every entry again that was passed over."""
        ...

    def pick(self, entry: StoredEntry) -> Consumer | None:
        """A ready consumer for the entry, None where there is none now."""
        ...

    def delivered(self, entry: StoredEntry, consumer: Consumer) -> None:
        """The entry went to the consumer and is not acknowledged yet."""
        ...

    def released(self, entry_id: int) -> bool:
        """The entry is no longer with a consumer; whether that lets one that was passed over go."""
        ...

    def waits_for(self, consumer: Consumer) -> bool:
        """Return whether entries were passed over because this consumer was not ready."""
        ...


class _Stateless:
    """The common part of rules that do not remember where entries are."""

    may_skip = False

    def __init__(self) -> None:
        self._consumers: list[Consumer] = []

    def begin(self, consumers: list[Consumer]) -> None:
        self._consumers = consumers

    def delivered(self, entry: StoredEntry, consumer: Consumer) -> None:
        """Nothing to remember."""

    def released(self, entry_id: int) -> bool:  # noqa: ARG002 - nothing to forget
        """No entry is ever passed over."""
        return False

    def waits_for(self, consumer: Consumer) -> bool:  # noqa: ARG002 - nothing to remember
        """No entry is ever passed over."""
        return False


class SingleActive(_Stateless):
    """Exclusive and Failover: one consumer gets everything.

    Args:
        partition: The topic's partition, so that the partitions of a topic spread over its Failover
            consumers; 0 (the first to join) where it is none.
    """

    def __init__(self, partition: int) -> None:
        super().__init__()
        self._partition = max(partition, 0)

    def active(self, consumers: list[Consumer]) -> Consumer | None:
        """The consumer whose turn it is."""
        return consumers[self._partition % len(consumers)] if consumers else None

    def pick(self, entry: StoredEntry) -> Consumer | None:  # noqa: ARG002 - the rule does not look at it
        """The active consumer, if it is ready."""
        active = self.active(self._consumers)
        return active if active is not None and active.is_ready else None


class RoundRobin(_Stateless):
    """Shared: entry by entry to the next consumer that is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def pick(self, entry: StoredEntry) -> Consumer | None:  # noqa: ARG002 - the rule does not look at it
        """The next ready consumer after the last one chosen."""
        count = len(self._consumers)
        for step in range(count):
            index = (self._next + step) % count
            if self._consumers[index].is_ready:
                self._next = index + 1
                return self._consumers[index]
        return None


class KeyHash:
    """Key_Shared: entries of one key go to one consumer, in order.

    When consumers come or go, keys change hands; a key whose entries are still with its former
    consumer waits until they are acknowledged (as PIP-379 has it).
    """

    may_skip = True

    def __init__(self) -> None:
        self._consumers: list[Consumer] = []
        self._waiting_slots: set[int] = set()
        self._unready: set[Consumer] = set()
        self._slot_of: dict[int, int] = {}
        self._holders: dict[int, tuple[Consumer, int]] = {}

    def begin(self, consumers: list[Consumer]) -> None:
        """No key is passed over from here."""
        self._consumers = consumers
        self._waiting_slots.clear()
        self._unready.clear()

    def pick(self, entry: StoredEntry) -> Consumer | None:
        """The key's consumer, unless it cannot take the entry now."""
        slot = entry.slot
        if slot in self._waiting_slots:
            return None
        owner = self._owner(slot)
        holder = self._holders.get(slot)
        if owner is not None and owner.is_ready and (holder is None or holder[0] is owner):
            return owner
        self._waiting_slots.add(slot)
        if owner is not None and not owner.is_ready:
            self._unready.add(owner)
        return None

    def delivered(self, entry: StoredEntry, consumer: Consumer) -> None:
        """The key is with this consumer until all its entries are released."""
        self._slot_of[entry.entry_id] = entry.slot
        _, count = self._holders.get(entry.slot, (consumer, 0))
        self._holders[entry.slot] = (consumer, count + 1)

    def released(self, entry_id: int) -> bool:
        """Take note that the consumer has one entry less of its key; the last one sets the key free."""
        slot = self._slot_of.pop(entry_id)
        consumer, count = self._holders[slot]
        if count > 1:
            self._holders[slot] = (consumer, count - 1)
            return False
        del self._holders[slot]
        return slot in self._waiting_slots

    def waits_for(self, consumer: Consumer) -> bool:
        """Return whether a key waits for this consumer's permits or its connection."""
        return consumer in self._unready

    def _owner(self, slot: int) -> Consumer | None:
        for consumer in self._consumers:
            if any(first <= slot <= last for first, last in consumer.key_ranges):
                return consumer
        sharing = [consumer for consumer in self._consumers if not consumer.key_ranges]
        return sharing[slot * len(sharing) // KEY_SLOTS] if sharing else None


LOOK_AHEAD = 1000
"""The most entries that a Key_Shared subscription passes over to find one that a consumer can take."""


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
            raise StandinRefusal(ServerError.ConsumerBusy, "the subscription has consumers of another type")
        elif sub_type == CommandSubscribe.Exclusive:
            raise StandinRefusal(ServerError.ConsumerBusy, "the Exclusive subscription has its consumer already")
        self.consumers.append(consumer)
        self._change_active()

    def remove(self, consumer: Consumer) -> None:
        """A consumer is gone; its pending entries are due again."""
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
        """Acknowledge an entry, or with an ack set the messages whose bits are clear."""
        if not 0 <= entry_id < self._log.next_id or self.cursor.is_acknowledged(entry_id):
            return
        if ack_set and not self.cursor.acknowledge_in_part(entry_id, ack_set):
            return
        self.cursor.acknowledge(entry_id)
        self._forget(entry_id)

    def acknowledge_up_to(self, entry_id: int, ack_set: Sequence[int] = ()) -> None:
        """Acknowledge all entries before this one, and this one as far as the ack set says."""
        end = min(entry_id + (0 if ack_set else 1), self._log.next_id)
        for done in range(self.cursor.position, end):
            self._forget(done)
        self.cursor.acknowledge_below(end)
        if ack_set:
            self.acknowledge(entry_id, ack_set)

    def redeliver(self, consumer: Consumer, entry_ids: Iterable[int]) -> None:
        """Entries pending with the consumer are due again; without ids, all entries.

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
        """Read on from `position`; acknowledgements and pending entries from there on are forgotten."""
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
        """Deliver all entries that consumers can take now."""
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

    def _next_entry(self) -> StoredEntry | None:
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

    def _deliver(self, entry: StoredEntry, consumer: Consumer) -> None:
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
