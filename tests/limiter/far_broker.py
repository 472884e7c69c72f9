"""A broker that is a round trip away: entries for a permit arrive some milliseconds after the FLOW left."""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count, repeat

from limiter.limiter import Limiter
from limiter.permits import RULES, DispatchRules
from limiter.scheduler import Scheduler
from tests.limiter.standing import row_of
from tests.limiter.subscriptions import Consumer, Dispatching, Size

QUEUE = 1000
"""Permits that a client has in all; it asks again when it has taken half from its queue."""


class FarBroker(Dispatching):
    """Consumers whose FLOWs take a while.

    Args:
        round_trip: From a FLOW to what arrives for it, nanoseconds.
        rules: How permits are counted.
    """

    def __init__(self, round_trip: int, rules: DispatchRules = RULES) -> None:
        super().__init__(rules)
        self.round_trip = round_trip
        self._flows: list[tuple[int, int, FarConsumer, int]] = []
        self._order = count()

    def far_consumer(self, topic: str = "x") -> "FarConsumer":
        """One that has a full queue's worth of permits to ask for, and so far no backlog."""
        consumer = FarConsumer(self, topic)
        consumer.ask(QUEUE)
        return consumer

    def flow(self, consumer: "FarConsumer", permits: int) -> None:
        """It leaves now."""
        heappush(self._flows, (self.clock.now + self.round_trip, next(self._order), consumer, permits))

    def go_on(self, seconds: float) -> None:
        """Let time pass: the broker sends, waiting entries pass, and clients ask again for those that they took."""
        end = self.clock.now + round(seconds * 1e9)
        while True:
            flow_at = self._flows[0][0] if self._flows else end + 1
            if (alarm := self.next_before(min(flow_at, end))) is not None:
                self._ring(*alarm)
            elif flow_at <= end:
                self._arrive(*heappop(self._flows))
            else:
                break
        self.clock.now = end

    def _ring(self, at: int, limiter: Limiter, scheduler: Scheduler) -> None:
        self.clock.now = max(self.clock.now, at)
        waiting = [place.stream.connection for place in row_of(limiter)]
        scheduler.serve(limiter, self.clock.now)
        for consumer in waiting:
            assert isinstance(consumer, FarConsumer)
            consumer.take_from_queue()

    def _arrive(self, at: int, _order: int, consumer: "FarConsumer", permits: int) -> None:
        self.clock.now = at
        consumer.counter += permits
        consumer.sent(consumer.backlog)
        consumer.take_from_queue()


class FarConsumer(Consumer):
    """A consumer, and the broker's entries for it."""

    def __init__(self, world: FarBroker, topic: str) -> None:
        self.backlog: Iterator[Size] = iter(())
        self._broker = world
        self._taken = 0
        super().__init__(world, topic)
        self.stream.connection = self

    def _grant(self, permits: int) -> None:
        self.granted += permits
        self._broker.flow(self, permits)

    def has_backlog(self, messages: int, size: int) -> None:
        """From now on, without end: entries of so much. What was sent for permits before is there at once."""
        self.backlog = repeat((messages, size))
        self.sent(self.backlog)

    def take_from_queue(self) -> None:
        """The application takes all messages; the client asks again by halves of its queue."""
        if self.passed - self._taken >= QUEUE // 2:
            self.ask(self.passed - self._taken)
            self._taken = self.passed
