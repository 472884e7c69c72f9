"""What one consumer has under way: permits at the broker, and what arrived and has not gone on to the client.

    granted ─▶ at the broker ─arrived─▶ held ─▶ passed or dropped
               └────────── under way ─────────┘

The broker counts permits in messages, but sends entries while its counter is above 0, and so may overdraw it: who is
granted 1 may be sent a batch of 50, and then stands at -49. So a permit at the broker is taken for an entry of the
consumer's usual size.
"""

from dataclasses import dataclass
from typing import Literal

from limiter.entry_mean import EntryMean

Unit = Literal["messages", "bytes"]


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """How deliveries are counted and asked for.

    Args:
        is_precise: A permit is taken for an entry of the usual size; else for a message (preciseDispatcherFlowControl).
        by_entry: Limits of messages count an entry as one, whatever it holds (dispatchThrottlingOnBatchMessageEnabled).
        spares_caught_up: Who has no backlog is not limited (dispatchThrottlingOnNonBacklogConsumerEnabled: false).
    """

    is_precise: bool = True
    by_entry: bool = False
    spares_caught_up: bool = False


RULES = DispatchRules()


class UnderWay:
    """Counts it, in messages as limits count them and in bytes.

    Attributes:
        at_broker: Permits granted and not used up: the broker's own counter; a batch may make it negative.
    """

    __slots__ = ("_held_entries", "_held_messages", "_held_size", "_mean", "_rules", "at_broker")

    def __init__(self, rules: DispatchRules) -> None:
        self.at_broker = 0
        self._held_entries = 0
        self._held_messages = 0
        self._held_size = 0
        self._mean = EntryMean()
        self._rules = rules

    @property
    def is_nothing(self) -> bool:
        """Whether nothing can come any more of what was granted."""
        return self.at_broker <= 0 and self._held_entries == 0

    @property
    def waits_for_broker(self) -> bool:
        """Whether the broker could send something, and all that it sent has gone on."""
        return self.at_broker > 0 and self._held_entries == 0

    @property
    def overdrawn(self) -> int:
        """Permits of which the broker makes nothing: it stands below 0 by as many."""
        return max(0, -self.at_broker)

    def learn(self, entries: int, messages: int, size: int) -> None:
        """The broker sent it: what an entry holds is known better."""
        self._mean.add(entries, messages, size)

    def counted(self, entries: int, messages: int, size: int, unit: Unit) -> int:
        """What a delivery is to limits."""
        if unit == "bytes":
            return size
        return entries if self._rules.by_entry else messages

    def hold(self, entries: int, messages: int, size: int) -> None:
        """What was delivered has not gone on yet; negative once it has, or was dropped."""
        self._held_entries += entries
        self._held_messages += messages
        self._held_size += size

    def amount(self, unit: Unit) -> int:
        """All that is under way."""
        coming = max(0, self.at_broker) * self.least(unit)
        return coming + self.counted(self._held_entries, self._held_messages, self._held_size, unit)

    def least(self, unit: Unit) -> int:
        """What the broker may send for one permit, as far as is known."""
        return max(1, self._per_permit(unit))

    def coming_for(self, permits: int, unit: Unit) -> int:
        """What the broker will send for so many; 0 as long as nothing is known."""
        return permits * self._per_permit(unit)

    def permits_for(self, share: int, unit: Unit) -> int:
        """Permits for which the broker may send `share`, to the next whole entry.

        As long as nothing is known of the entries, it is one permit at a time: one entry, which will tell.
        """
        per_permit = self._per_permit(unit)
        if per_permit == 0:
            return 1 if self.at_broker <= 0 else 0
        return -(-share // per_permit)

    def _per_permit(self, unit: Unit) -> int:
        """What the broker sends for a permit; 0 as long as nothing is known."""
        if unit == "bytes":
            return self._mean.size
        return self._mean.messages if self._rules.is_precise and not self._rules.by_entry else 1
