"""Whatever clients, brokers and operators do: every pause has its reason, its bound and its end.

Whole sessions run here, without a network: several clients, each with four producers of two tenants, whose connections
are cut into any chunks; brokers read and answer when they like; limits change; producers and clients end at any time.
"""

from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from limiter.levels import Setting
from limiter.policies import Value
from limiter.token_bucket import Limit, rate
from proxy.budgets import ENTRY_OVERHEAD
from proxy.session.transport import PauseReason
from tests.examples import examples
from tests.proxy.conversation import World
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.kernel_transport import KernelTransport
from tests.proxy.party import Party, traffic_of
from tests.proxy.wire import (
    PING,
    PONG,
    UNLIMITED_TOPIC,
    body,
    close_producer,
    name_of,
    producer,
    producer_success,
    send,
)

TOPICS = ["persistent://acme/shop/a", "persistent://acme/shop/b", "persistent://umbrella/shop/a", UNLIMITED_TOPIC]
MOST_SIZE = 1500
"""A few of them find room on the way to a broker that does not read: the next is cut anywhere."""
ENTRY = len(send(250, 4, size=MOST_SIZE)) + ENTRY_OVERHEAD
"""Most memory of a held entry."""
HOLD_CONNECTION, HOLD_TOTAL = 5 * ENTRY, 8 * ENTRY
MOST_CLIENTS = 4
MOST_ROUNDS = 1000
"""Until all is drained: with `mode: pause` and one publish under way, entries pass one a round."""

NUMBERS = st.integers(0, MOST_CLIENTS - 1)
PRODUCERS = st.integers(1, 4)
KINDS = st.tuples(st.sampled_from([4, 1, 2, 3, 4]), st.one_of(st.integers(0, 60), st.just(MOST_SIZE)))
"""Of frames: their producer, of which the last has no limit, and their size."""


class Pauses(RuleBasedStateMachine):
    """Sessions that share one small budget."""

    @initialize(
        mode=st.sampled_from(["hold", "pause"]),
        most=st.sampled_from([0, 1, 2, 5]),
        transports=st.sampled_from([KernelTransport, FakeTransport]),
    )
    def begin(self, mode: str, most: int, transports: type[FakeTransport]) -> None:
        publish = {"mode": mode, "max_pending": most, "hold_connection": HOLD_CONNECTION, "hold_total": HOLD_TOTAL}
        limits = {topic: {"publish": {"messages": number}} for number, topic in enumerate(TOPICS[:3], start=2)}
        self.world = World(transports=transports, publish=publish, limits={"topics": limits})
        self.mode, self.most = mode, most
        self.parties: list[Party] = []
        for _ in range(2):
            self.join()

    @precondition(lambda self: len(self.parties) < MOST_CLIENTS)
    @rule()
    def join(self) -> None:
        """A client comes."""
        client, broker = self.world.pair()
        for number, topic in enumerate(TOPICS, start=1):
            client >> producer(number, topic)
        broker.heard()
        for number in range(1, len(TOPICS) + 1):
            broker >> producer_success(number)
        broker.stop_reading()
        self.parties.append(Party(self.world.sessions[-1], client, broker))

    @precondition(lambda self: len(self.parties) > 1)
    @rule(which=NUMBERS)
    def leave(self, which: int) -> None:
        """A client is gone at once."""
        party = self._party(which)
        party.client.leave()
        self.parties.remove(party)

    @rule(which=NUMBERS, kinds=st.lists(KINDS, min_size=1, max_size=14))
    def write(self, which: int, kinds: list[tuple[int, int]]) -> None:
        """A client has something to send, which leaves it in any portions."""
        party = self._party(which)
        for number, size in kinds:
            frame = send(len(party.sent[number]) % 251, number, size=size)
            party.unsent += frame
            party.sent[number].append(frame)

    @rule(which=NUMBERS, share=st.floats(0, 1))
    def deliver(self, which: int, share: float) -> None:
        party = self._party(which)
        amount = round(len(party.unsent) * share)
        chunk, party.unsent = party.unsent[:amount], party.unsent[amount:]
        if chunk:
            party.client.send_bytes(chunk)

    @rule(which=NUMBERS)
    def deliver_all(self, which: int) -> None:
        self.deliver(which, 1.0)

    @rule(which=NUMBERS, most=st.integers(1, 5000))
    def broker_reads_some(self, which: int, most: int) -> None:
        self.world.loop.run(self._party(which).broker.transport.take, most)

    @rule(which=NUMBERS)
    def broker_reads_all(self, which: int) -> None:
        self.world.loop.run(self._party(which).broker.transport.take_all)

    @rule(which=NUMBERS, number=PRODUCERS)
    def answer(self, which: int, number: int) -> None:
        """A broker answers all that it has of a producer."""
        party = self._party(which)
        while party.pending(number) > 0:
            party.answer(number)
            party.hear()

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0, 2.5]))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(topic=st.sampled_from(TOPICS[:3]), per_second=st.sampled_from([1, 3, 100, None]))
    def change_limit(self, topic: str, per_second: int | None) -> None:
        policies = self.world.engine.registry.policies
        value = None if per_second is None else Value(Limit(rate(per_second)), "test")
        policies.put("publish", Setting.TOPIC, topic, value)
        self.world.loop.run(self.world.engine.policies_changed)

    @rule(which=NUMBERS, number=PRODUCERS)
    def broker_closes(self, which: int, number: int) -> None:
        """Its topic is unloaded: what the broker has of it, it does not answer."""
        party = self._party(which)
        party.closed.add(number)
        party.broker >> close_producer(number)

    @rule(which=NUMBERS)
    def ping(self, which: int) -> None:
        """The broker's probe is answered at once: by the client, or in its place while it is not read."""
        party = self._party(which)
        party.hear()
        was_read, pongs = party.client.is_read, party.pongs + party.on_its_way().count(PONG)
        party.client.heard()
        party.broker >> PING
        party.hear()
        if was_read:
            assert party.client.heard() == [PING]
        else:
            assert party.pongs + party.on_its_way().count(PONG) == pongs + 1

    @invariant()
    def every_pause_has_its_reasons_and_no_count_is_negative(self) -> None:
        throttled = self.world.counters.throttled
        assert all(count >= 0 for count in throttled.values())
        for reason in PauseReason:
            assert throttled[f"client {reason}"] == sum(reason in party.pause_reasons for party in self.parties)
        for party in self.parties:
            assert party.client.is_read == (not party.pause_reasons)

    @invariant()
    def held_bytes_are_counted_and_bounded(self) -> None:
        held = {party: self._held(party) for party in self.parties}
        assert self.world.engine.held.used == sum(sum(each.values()) for each in held.values())
        assert self.world.engine.held.used < HOLD_TOTAL + ENTRY * len(self.parties)
        for each in held.values():
            assert sum(each.values()) < (1 if self.mode == "pause" else HOLD_CONNECTION) + ENTRY

    @invariant()
    def paused_for_what_is_held_are_exactly_those_who_hold(self) -> None:
        own = PauseReason.PUBLISH_RATE if self.mode == "pause" else PauseReason.HOLD_CONNECTION
        for party in self.parties:
            held = self._held(party)
            over = any(self.world.engine.held.is_over(tenant) for tenant, size in held.items() if size)
            assert (PauseReason.HOLD_PROCESS in party.pause_reasons) == over
            if self.mode == "pause":
                assert (own in party.pause_reasons) == (sum(held.values()) > 0)
            else:
                assert sum(held.values()) < HOLD_CONNECTION or own in party.pause_reasons
                assert sum(held.values()) > HOLD_CONNECTION // 2 or own not in party.pause_reasons

    @invariant()
    def each_producers_entries_pass_in_order_and_once(self) -> None:
        for party in self.parties:
            party.hear()
            for number, came in party.came.items():
                assert came == party.sent[number][: len(came)]

    @invariant()
    def what_the_broker_has_not_answered_is_counted(self) -> None:
        for party in self.parties:
            sent = traffic_of(party.session).to_broker._sent
            assert (sent is None) == (self.most == 0)
            if sent is None:
                continue
            party.hear()
            pending = sum(party.pending(number) for number in party.came)
            under_way = [body(frame).producer_id for frame in party.on_its_way() if name_of(frame) == "SEND"]
            pending += sum(number not in party.closed for number in under_way)
            assert sent.count - pending in ({0, 1} if traffic_of(party.session).to_broker.writer.mid_frame else {0})
            assert sent.count < self.most or PauseReason.PENDING_PUBLISHES in party.pause_reasons
            assert sent.count > self.most // 2 or PauseReason.PENDING_PUBLISHES not in party.pause_reasons

    def teardown(self) -> None:
        """Left alone, everything passes; nobody is paused; everything is given back."""
        if not hasattr(self, "world"):
            return
        try:
            for party in self.parties:
                party.broker.read_on()
                party.client.send_bytes(party.unsent)
            for _ in range(MOST_ROUNDS):
                self.world.advance(2)
                for party in self.parties:
                    party.answer_all()
                if not any(self._has_more(party) for party in self.parties):
                    break
            for party in self.parties:
                party.hear()
                assert party.client.is_read
                assert not self.world.engine.held.used
                for number in set(party.came) - party.closed:
                    assert party.came[number] == party.sent[number]
        finally:
            self.world.close()

    @staticmethod
    def _has_more(party: Party) -> bool:
        return any(len(party.came[number]) < len(party.sent[number]) for number in set(party.came) - party.closed)

    def _party(self, which: int) -> Party:
        return self.parties[which % len(self.parties)]

    def _held(self, party: Party) -> dict[str, int]:
        """By tenant."""
        held: dict[str, int] = {}
        for stream in self.world.engine.registry.live():
            if stream.connection is party.session.connection:
                size = sum(entry.memory for entry in stream.held)
                held[stream.name.tenant] = held.get(stream.name.tenant, 0) + size
        return held


TestPauses: Any = Pauses.TestCase
# Without shrinking: whole sessions are slow to shrink (minutes), and the steps of a failure are readable as they are.
TestPauses.settings = settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None, phases=[Phase.generate]
)
