"""What one topic received and delivered."""

from dataclasses import dataclass


@dataclass(slots=True)
class TopicCounts:
    """Totals since the broker started; bytes are those behind the command; redeliveries count again."""

    received_entries: int = 0
    received_messages: int = 0
    received_bytes: int = 0
    delivered_entries: int = 0
    delivered_messages: int = 0
    delivered_bytes: int = 0

    def receive(self, messages: int, size: int) -> None:
        """Count one SEND that was kept."""
        self.received_entries += 1
        self.received_messages += messages
        self.received_bytes += size

    def deliver(self, messages: int, size: int) -> None:
        """Count one MESSAGE."""
        self.delivered_entries += 1
        self.delivered_messages += messages
        self.delivered_bytes += size
