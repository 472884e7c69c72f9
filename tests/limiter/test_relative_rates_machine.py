"""Publish rates while streams open and close in any order, beside a plain count; and deliveries by these rates."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from limiter.limiter import Stream
from limiter.token_bucket import NANOS_PER_SECOND, NOTHING_PUBLISHED, PUBLISH_WINDOW_NS, Rate
from tests.examples import examples
from tests.limiter.ledger import within_all
from tests.limiter.published import Place, in_force


class Noted(Place):
    """A place with one consumer, where each rate of its limit and each delivery is written down."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[int, Rate | int]] = []
        self.one = self.consumer()
        self.look()

    def look(self) -> None:
        value = self.one.chain[0].limit.messages
        assert value is not None
        if value != next((step for _, step in reversed(self.steps) if isinstance(step, Rate)), None):
            self.steps.append((self.clock.now, value))

    def note(self, stream: Stream, messages: int, size: int) -> None:
        super().note(stream, messages, size)
        if stream is self.one:
            self.look()
            self.steps.append((self.clock.now, messages))

    def second(self) -> int:
        changes = super().second()
        self.look()
        return changes


class Following(RuleBasedStateMachine):
    """Producers of one topic come, publish, pause and go, while a consumer has batches of any size delivered.

    Proves: the limit is what a model makes of what passed in which second; and P2 over every interval, with the sum of
    what the limit gave in it, however it rose and fell.
    """

    def __init__(self) -> None:
        super().__init__()
        self.place = Noted()
        self.consumer = self.place.one
        self.producers: list[Stream] = []
        self.by_second = [0]

    @rule()
    def come(self) -> None:
        self.producers.append(self.place.producer())

    @precondition(lambda self: self.producers)
    @rule(messages=st.integers(1, 300), number=st.integers(0, 9))
    def publish(self, messages: int, number: int) -> None:
        self.place.offer(self.producers[number % len(self.producers)], messages, 1)
        self.by_second[-1] += messages

    @precondition(lambda self: self.producers)
    @rule(number=st.integers(0, 9))
    def go(self, number: int) -> None:
        self.place.close(self.producers.pop(number % len(self.producers)))

    @rule(messages=st.integers(1, 30) | st.integers(1, 3000), number=st.integers(1, 5))
    def deliver(self, messages: int, number: int) -> None:
        for _ in range(number):
            self.place.offer(self.consumer, messages, 1)

    @rule(seconds=st.integers(1, 25))
    def pass_time(self, seconds: int) -> None:
        """At rest no rate is measured, as in the product."""
        relative, journal = self.place.registry.relative, self.place.journal
        for _ in range(seconds):
            if relative.is_moving or journal.streams:
                self.place.second()
            else:
                self.place.run(1)
            self.by_second.append(0)
        self._judge()

    def _judge(self) -> None:
        last = self.by_second[:-1][-10:]
        due = -(-sum(last) * 10 // len(last))
        published = self.consumer.chain[0].limit.published
        assert published is not None
        assert due <= published.messages <= due * 1.01
        assert in_force(self.consumer)[0] == 10 + published.messages * NANOS_PER_SECOND / PUBLISH_WINDOW_NS

    @invariant()
    def what_is_at_rest_has_published_nothing_lately(self) -> None:
        if not self.place.registry.relative.is_moving:
            assert self.consumer.chain[0].limit.published == NOTHING_PUBLISHED

    def teardown(self) -> None:
        within_all(self.place.steps)


TestFollowing = Following.TestCase
TestFollowing.settings = settings(max_examples=examples(60), stateful_step_count=30)
