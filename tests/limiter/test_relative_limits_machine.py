"""Publish rates under any order of comings and goings, against counting by hand."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from limiter.rates import NANOS_PER_SECOND, NOTHING_PUBLISHED, PUBLISH_WINDOW_NS
from limiter.stream import Stream
from tests.limiter.published import Place, in_force


class Following(RuleBasedStateMachine):
    """Producers of one topic come, publish, pause and go; a model knows what passed in which second."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Place()
        self.consumer = self.place.consumer()
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

    @rule(seconds=st.integers(1, 25))
    def pass_time(self, seconds: int) -> None:
        """At rest nobody measures, as in the product."""
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


TestFollowing = Following.TestCase
TestFollowing.settings = settings(max_examples=60, stateful_step_count=30)
