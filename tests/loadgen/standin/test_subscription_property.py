"""Whatever happens in whatever order: nothing is lost, nothing goes out twice at a time, keys keep their order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loadgen.standin.bench import Bench, Exclusive, Failover, KeyShared, Shared

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "flow", "join", "leave", "acknowledge", "redeliver", "block", "unblock"]),
        st.integers(0, 5),
    ),
    max_size=80,
)


class Drill:
    """Takes random steps and keeps its own book of where each entry is."""

    def __init__(self, sub_type):
        self.bench = Bench(sub_type)
        self.most = 1 if sub_type == Exclusive else 3
        self.consumers = []
        self.joined = 0
        self.key_of = []
        self.pending = {}
        self.acknowledged = set()
        self.delivered_by_key = {}

    def step(self, action, number):
        getattr(self, action)(number)
        self.observe()

    def observe(self):
        deliveries, self.bench.outlet.deliveries = self.bench.outlet.deliveries, []
        for consumer_id, delivery in deliveries:
            entry_id = delivery.entry.entry_id
            assert entry_id not in self.acknowledged
            assert self.pending.get(entry_id) is None
            self.pending[entry_id] = consumer_id
            self.delivered_by_key.setdefault(self.key_of[entry_id], []).append(entry_id)

    def publish(self, number):
        self.key_of.append(str(number))
        self.bench.publish(key=str(number))

    def flow(self, number):
        if self.consumers:
            self.bench.flow(self.consumers[number % len(self.consumers)], number)

    def join(self, number):
        if len(self.consumers) < self.most:
            self.joined += 1
            self.consumers.append(self.bench.join(self.joined, permits=number))

    def leave(self, number):
        if self.consumers:
            consumer = self.consumers.pop(number % len(self.consumers))
            self.forget_pending(consumer.consumer_id)
            self.bench.leave(consumer)

    def acknowledge(self, number):
        if self.pending:
            entry_id = sorted(self.pending)[number % len(self.pending)]
            del self.pending[entry_id]
            self.acknowledged.add(entry_id)
            self.bench.subscription.acknowledge(entry_id)
            self.bench.subscription.dispatch()

    def redeliver(self, number):
        if self.consumers:
            consumer = self.consumers[number % len(self.consumers)]
            self.forget_pending(consumer.consumer_id)
            self.bench.redeliver(consumer)

    def block(self, _):
        self.bench.outlet.writable = False

    def unblock(self, _):
        self.bench.outlet.writable = True
        for consumer in self.consumers:
            self.bench.subscription.resume(consumer)
        self.bench.subscription.dispatch()

    def forget_pending(self, consumer_id):
        self.pending = {entry_id: holder for entry_id, holder in self.pending.items() if holder != consumer_id}

    def finish(self):
        """Give everybody permits and acknowledge everything, until nothing moves any more."""
        self.step("unblock", 0)
        if not self.consumers:
            self.step("join", 5)
        for consumer in self.consumers:
            self.bench.flow(consumer, 10_000)
            self.observe()
        while self.pending:
            self.step("acknowledge", 0)


@pytest.mark.parametrize(
    "sub_type", [Exclusive, Shared, Failover, KeyShared], ids=["excl", "shared", "failover", "key"]
)
@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_every_entry_is_delivered_until_it_is_acknowledged(sub_type, steps):
    drill = Drill(sub_type)
    for action, number in steps:
        drill.step(action, number)
    drill.finish()
    assert drill.acknowledged == set(range(drill.bench.log.next_id))
    assert drill.bench.subscription.cursor.position == drill.bench.log.next_id


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_a_key_is_with_one_consumer_at_a_time_and_in_order(steps):
    drill = Drill(KeyShared)
    for action, number in steps:
        if action in {"redeliver", "leave"}:
            continue  # what comes again is out of order by nature
        drill.step(action, number)
        holders: dict[str, int] = {}
        for entry_id, holder in drill.pending.items():
            assert holders.setdefault(drill.key_of[entry_id], holder) == holder
    drill.finish()
    for entry_ids in drill.delivered_by_key.values():
        assert entry_ids == sorted(entry_ids)
