"""Which consumer gets an entry: one rule for each subscription type."""

from typing import Protocol

from loadgen.standin.consumer import Consumer
from loadgen.standin.entry import KEY_SLOTS, Entry


class Selection(Protocol):
    """Chooses among consumers, in their order of joining."""

    may_skip: bool
    """Whether an entry that nobody can take now lets later ones pass."""

    def begin(self, consumers: list[Consumer]) -> None:
        """From now on these are the consumers, and every entry that was passed over is tried again."""
        ...

    def pick(self, entry: Entry) -> Consumer | None:
        """A ready consumer for the entry, None where there is none now."""
        ...

    def delivered(self, entry: Entry, consumer: Consumer) -> None:
        """The entry went to the consumer and is not acknowledged yet."""
        ...

    def released(self, entry_id: int) -> bool:
        """The entry is no longer with a consumer; whether that lets one that was passed over go."""
        ...

    def waits_for(self, consumer: Consumer) -> bool:
        """Whether entries were passed over because this consumer was not ready."""
        ...


class _Stateless:
    """What the rules have in common that do not remember where entries are."""

    may_skip = False

    def __init__(self) -> None:
        self._consumers: list[Consumer] = []

    def begin(self, consumers: list[Consumer]) -> None:
        self._consumers = consumers

    def delivered(self, entry: Entry, consumer: Consumer) -> None:
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
        """The one whose turn it is."""
        return consumers[self._partition % len(consumers)] if consumers else None

    def pick(self, entry: Entry) -> Consumer | None:  # noqa: ARG002 - the rule does not look at it
        """The active consumer, if it is ready."""
        active = self.active(self._consumers)
        return active if active is not None and active.is_ready else None


class RoundRobin(_Stateless):
    """Shared: entry by entry to the next consumer that is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def pick(self, entry: Entry) -> Consumer | None:  # noqa: ARG002 - the rule does not look at it
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

    def pick(self, entry: Entry) -> Consumer | None:
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

    def delivered(self, entry: Entry, consumer: Consumer) -> None:
        """The key is with this consumer until all its entries are released."""
        self._slot_of[entry.entry_id] = entry.slot
        _, count = self._holders.get(entry.slot, (consumer, 0))
        self._holders[entry.slot] = (consumer, count + 1)

    def released(self, entry_id: int) -> bool:
        """One entry less of its key is with the consumer; the last one sets the key free."""
        slot = self._slot_of.pop(entry_id)
        consumer, count = self._holders[slot]
        if count > 1:
            self._holders[slot] = (consumer, count - 1)
            return False
        del self._holders[slot]
        return slot in self._waiting_slots

    def waits_for(self, consumer: Consumer) -> bool:
        """Whether a key waits for this consumer's permits or its connection."""
        return consumer in self._unready

    def _owner(self, slot: int) -> Consumer | None:
        for consumer in self._consumers:
            if any(first <= slot <= last for first, last in consumer.key_ranges):
                return consumer
        sharing = [consumer for consumer in self._consumers if not consumer.key_ranges]
        return sharing[slot * len(sharing) // KEY_SLOTS] if sharing else None
