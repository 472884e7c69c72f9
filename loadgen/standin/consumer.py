"""One consumer of a subscription, as the dispatch decisions see it."""

from dataclasses import dataclass
from typing import Protocol

from loadgen.standin.entry import Entry


@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry on its way to one consumer."""

    entry: Entry
    redelivery_count: int
    ack_set: tuple[int, ...]


class Outlet(Protocol):
    """The connection behind a consumer. Its calls come in order and never raise."""

    @property
    def writable(self) -> bool:
        """Whether it takes more deliveries now."""
        ...

    def deliver(self, consumer: "Consumer", delivery: Delivery) -> None:
        """Send a MESSAGE."""
        ...

    def tell_active(self, consumer: "Consumer", *, is_active: bool) -> None:
        """Send an ACTIVE_CONSUMER_CHANGE."""
        ...

    def send_away(self, consumer: "Consumer") -> None:
        """The broker ended this consumer: send a CLOSE_CONSUMER that nobody asked for."""
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
        """Whether an entry may be delivered now."""
        return self.permits > 0 and self.outlet.writable
