"""Consumers at a broker that behaves as Pulsar's: it sends entries while its counter of permits is above 0."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from limiter.levels import Client, Setting
from limiter.limiter import Limiter, Scope, Stream, StreamName
from limiter.permits import RULES, DispatchRules
from limiter.policies import InForce, Policies, Value
from limiter.registry import Registry
from limiter.scheduler import Scheduler
from limiter.shadow import ShadowLimiter
from limiter.token_bucket import Limit
from protocol.topic_name import parse_topic
from tests.limiter.ledger import Charge, Ledger, named
from tests.limiter.world import Telling, World

Size = tuple[int, int]
"""Messages and bytes of an entry."""


class Dispatching(World):
    """A world whose consumers are limited by policies, and a ledger of the passed entries."""

    def __init__(self, rules: DispatchRules = RULES) -> None:
        super().__init__()
        self.scheduler = Telling(self._passed, self.alarms.wake_at, self.journal)
        self.observer = ShadowLimiter(partial(Scheduler, self.rehearsals.wake_at), self.journal, 1 << 30, 0)
        self.policies = Policies()
        self.ledger = Ledger()
        self.registry = Registry(self.policies, self.scheduler, self.observer, rules, self.clock)

    def put(self, setting: Setting, name: str, limit: Limit | None) -> None:
        self.policies.put("dispatch", setting, name, Value(limit, "file") if limit else None)

    def limit_topics(self, limit: Limit) -> "Dispatching":
        """Each topic of t/n."""
        self.put(Setting.TOPIC_OF_NAMESPACE, "t/n", limit)
        return self

    def change(self) -> None:
        """Put changed values in force; until now a changed limit is checked by its earlier value."""
        known = [
            self.policies.in_force("dispatch", *of) for of in map(self.registry._live.__getitem__, self.registry.live())
        ]
        self.ledger.in_force_now((entry.scope, entry.limit) for entry in chain.from_iterable(known))
        self.registry.apply(self.clock.now)

    def in_force(self, consumer: "Consumer") -> tuple[InForce, ...]:
        """What limits it, unless it is spared."""
        return self.policies.in_force("dispatch", *self.registry._live[consumer.stream])

    def tokens(self) -> dict[tuple[Scope, int], int]:
        """What every bucket holds, by limit and kind."""
        return {
            (limiter.scope, kind): bucket.tokens(self.clock.now)
            for limiter in self.registry.limiters.values()
            for kind, bucket in enumerate(limiter._buckets)
            if bucket is not None
        }

    def consumer(self, topic: str = "x", subscription: str = "s") -> "Consumer":
        return Consumer(self, topic, subscription)

    def drain(self, consumers: list["Consumer"], entries: Iterator[Size], seconds: float) -> None:
        """The broker sends entries for all its permits; each client asks again for those that it received."""
        end = self.clock.now + round(seconds * 1e9)
        while self.clock.now < end:
            for consumer in consumers:
                received = consumer.passed
                consumer.sent(entries)
                consumer.ask(consumer.passed - received)
            before = {consumer: consumer.passed for consumer in consumers}
            self.run_until(min(end, self.clock.now + 10_000_000))
            for consumer in consumers:
                consumer.ask(consumer.passed - before[consumer])

    def _passed(self, stream: Stream, messages: int, size: int) -> None:
        self.ledger.passed(named(stream.chain), Charge(self.clock.now, messages, size))


class Consumer:
    """A consumer, and the broker's and the client's own counts of it.

    Attributes:
        asked: Permits that the client asked for, and still counts on where they were dropped (`again` of them).
        forgone: Those among them that it gave up when it asked to be closed.
        granted: What the broker got of them.
        granted_unlimited: What of that it got while no limit held.
        counter: What of that the broker has not used up.
        delivered: Messages that the broker sent.
        is_closing: Whether the client asked to be closed, and has no answer yet.
    """

    def __init__(self, world: Dispatching, topic: str = "x", subscription: str = "s") -> None:
        self.world = world
        self.place = topic, subscription
        self.asked = 0
        self.again = 0
        self.forgone = 0
        self.granted = 0
        self.granted_unlimited = 0
        self.counter = 0
        self.delivered = 0
        self.is_closing = False
        self.stream = world.stream(by_entry=world.registry._rules.by_entry)
        self.stream.name = StreamName(
            "dispatch", "t", "n", parse_topic(f"t/n/{topic}").full, 1, subscription=subscription
        )
        client = Client(subscription=subscription)
        world.registry.open(self.stream, parse_topic(f"t/n/{topic}"), world.clock.now, client)
        world.registry.meter(self.stream, self._grant)
        assert self.stream.permits is not None
        self.permits = self.stream.permits

    @property
    def limiters(self) -> tuple[Limiter, ...]:
        return self.stream.chain

    def _grant(self, permits: int) -> None:
        assert permits > 0, "a FLOW of nothing, or of less"
        self.granted += permits
        self.counter += permits
        self.granted_unlimited += 0 if self.permits.windows else permits

    def ask(self, permits: int) -> "Consumer":
        """The client's FLOW."""
        self.asked += permits
        if self.permits.ask(permits, as_it_came=True):
            self._grant(permits)
        return self

    def sent(self, entries: Iterable[Size]) -> list[Size]:
        """What of a backlog the broker sends now; each entry arrives when it is taken."""
        taken = []
        for messages, size in entries:
            if self.counter <= 0:
                break
            taken.append((messages, size))
            self._arrives(messages, size)
        return taken

    def sent_as_read(self, entry: Size, most: int = 100) -> None:
        """What a broker sends that reads an entry for each permit and sends them all, whatever they hold."""
        for _ in range(min(self.counter, most)):
            self._arrives(*entry)

    def _arrives(self, messages: int, size: int) -> None:
        self.counter -= messages
        self.delivered += messages
        self.world.offer(self.stream, messages, size)

    def sent_in_a_chunk(self, entries: list[Size]) -> bool:
        """The same in one read, as the relay takes it; False if it must be offered one by one."""
        scheduler, now = self.world.scheduler, self.world.clock.now
        count, messages, size = len(entries), sum(each[0] for each in entries), sum(each[1] for each in entries)
        if not scheduler.admit(self.stream, self.stream.charged(count, messages), size, now):
            return False
        self.counter -= messages
        self.delivered += messages
        largest = max(each[0] for each in entries), max(each[1] for each in entries)
        scheduler.count_admitted(self.stream, count, messages, size, *largest)
        self.permits.crossed(count, messages, size)
        return True

    def drop(self, *, ask_again: bool) -> int:
        """What is held is dropped, as on REDELIVER or SEEK; how many messages."""
        dropped = self.world.scheduler.drop_held(self.stream, self.world.clock.now)
        messages, size = sum(entry.messages for entry in dropped), sum(entry.size for entry in dropped)
        self.permits.dropped(len(dropped), messages, size, ask_again=ask_again)
        self.asked += messages if ask_again else 0
        self.again += messages if ask_again else 0
        return messages

    def ask_to_close(self) -> None:
        """The client's CLOSE_CONSUMER: it asks for no more; entries that the broker has sent may still arrive."""
        self.is_closing = True
        self.forgone += self.permits.asked
        self.permits.forgo()
        self.drop(ask_again=False)

    def close(self) -> None:
        """The broker closed it, or agreed to."""
        self.world.registry.close(self.stream, self.world.clock.now)

    @property
    def passed(self) -> int:
        return self.stream.usage.passed_messages

    @property
    def held(self) -> int:
        return self.stream.usage.held_messages
