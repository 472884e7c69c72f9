"""A subscription on a bench: pure, every delivery recorded."""

from loadgen.standin.entry_log import EntryLog, StoredEntry
from loadgen.standin.subscription import Consumer, Subscription
from protocol.pulsar_pb2 import CommandSubscribe
from tests.loadgen.standin.doubles import RecordingOutlet, payload

Exclusive, Shared = CommandSubscribe.Exclusive, CommandSubscribe.Shared
Failover, KeyShared = CommandSubscribe.Failover, CommandSubscribe.Key_Shared


class CountingLog(EntryLog):
    """Counts how often an entry is looked at."""

    def __init__(self) -> None:
        super().__init__(1, 10_000_000)
        self.looks = 0

    def get(self, entry_id: int) -> StoredEntry | None:
        self.looks += 1
        return super().get(entry_id)


class Bench:
    """A subscription with recording consumers; each step ends with a round of dispatching."""

    def __init__(self, sub_type=Shared, partition=-1):
        self.log = CountingLog()
        self.outlet = RecordingOutlet()
        self.sub_type = sub_type
        self.wakes = 0
        self.subscription = Subscription(self.log, 0, partition, self._wake)

    def _wake(self, _):
        self.wakes += 1

    def join(self, consumer_id=1, permits=1000):
        consumer = Consumer(consumer_id, self.outlet)
        self.subscription.add(consumer, self.sub_type)
        self.subscription.flow(consumer, permits)
        self.subscription.dispatch()
        return consumer

    def publish(self, count=1, messages=1, key=None):
        for _ in range(count):
            self.log.append(messages, payload(**({} if key is None else {"partition_key": key})))
        self.subscription.dispatch()

    def redeliver(self, consumer, *entry_ids):
        self.subscription.redeliver(consumer, entry_ids)
        self.subscription.dispatch()

    def leave(self, consumer):
        self.subscription.remove(consumer)
        self.subscription.dispatch()

    def flow(self, consumer, permits):
        self.subscription.flow(consumer, permits)
        self.subscription.dispatch()

    def redelivery_counts(self):
        return [(delivery.entry.entry_id, delivery.redelivery_count) for _, delivery in self.outlet.deliveries]
