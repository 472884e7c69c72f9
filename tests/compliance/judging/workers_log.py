"""What a proxy of several workers would have logged: their messages take a while, and count when they are heard."""

from random import Random
from typing import Any

from limiter.levels import Setting
from limiter.limiter import Stream
from limiter.token_bucket import NANOS_PER_SECOND, Limit, rate
from tests.compliance.judging.governed_log import GovernedLog
from tests.limiter.workers.together import Workers

REPORT_NS = 100_000_000
"""So often workers tell what only counts."""
MOST_UNDER_WAY_NS = 3_000_000
MOST_HELD_BACK_NS = 40_000_000
"""Behind a change of limits messages may take longer: everybody is busy with it."""


class WorkersLog(GovernedLog):
    """Two workers under one quota server's limits, and the lines that were written so far."""

    def __init__(self, chance: Random, workers: int = 2) -> None:
        self.count = workers
        super().__init__(chance)
        self.reports_at = REPORT_NS
        self.messages_from = 0
        self.quiet = False

    def make_world(self) -> Any:
        return Workers(self.count)

    @property
    def places(self) -> list[Any]:
        return list(self.world.workers)

    def limit(self, setting: Setting, name: str, limit: Limit | None) -> None:
        """Messages may be under way then: what they tell counts behind the change."""
        super().limit(setting, name, limit)
        if self.chance.random() < 0.5:
            self.messages_from = self.world.clock.now + self.chance.randrange(MOST_HELD_BACK_NS)

    def put(self, setting: Setting, name: str, limit: Limit | None) -> None:
        self.world.limit(setting, name, limit)

    def join(self, place: Any, topic: str, *, by_entry: bool = False) -> Stream:
        stream: Stream = place.open(topic, lambda _stream, _entry: None, by_entry=by_entry)
        self.live.append((place, stream))
        return stream

    def leave(self, which: tuple[Any, Stream]) -> None:
        worker, stream = which
        self.live.remove(which)
        worker.quota_client.close(stream, self.world.clock.now)

    def send(self, which: tuple[Any, Stream], messages: int, size: int) -> None:
        worker, stream = which
        self.world.offer(worker, stream, messages, size)

    def disturb(self) -> None:
        """A worker is killed: what it was lent is lost, and so is what it has not told."""
        old = self.world.kill(self.chance.randrange(self.count))
        self.live = [one for one in self.live if one[0] is not old]

    def advance(self, span_ns: int) -> None:
        """Messages that are under way arrive within some milliseconds."""
        world, end = self.world, self.world.clock.now + span_ns
        # Whoever has said nothing has nothing to say, until an alarm rings: it need not be asked each millisecond.
        self.quiet = False
        while world.clock.now < end:
            messages = world.clock.now + self.chance.randrange(1, MOST_UNDER_WAY_NS)
            until = min(end, self.due, self.reports_at, messages)
            if world.soonest() <= until:
                self.quiet = False
                world.run_until(until)
            else:
                world.clock.now = until
            if world.clock.now >= self.reports_at:
                self.quiet = False
                self.reports_at += REPORT_NS
                for worker in world.workers:
                    worker.up.extend(worker.quota_client.report())
            if world.clock.now >= messages:
                self._deliver()
            if world.clock.now >= self.due:
                self.quiet = False
                self.write()
                self.due += self.interval

    def _deliver(self) -> None:
        """Some messages, of each side in order."""
        if self.world.clock.now < self.messages_from:
            return
        most = [self.chance.choice((1, 5, 100)) for _ in self.world.workers]
        if self.quiet:
            return
        self.quiet = True
        for worker, times in zip(self.world.workers, most, strict=True):
            for _ in range(times):
                if not (worker.hear_one() | worker.obey_one()):
                    break
                self.quiet = False


FLAPPING = (
    None,
    Limit(rate(3000, burst=300)),
    Limit(rate(20, burst=2)),
    Limit(rate(900, burst=90), rate(20_000, burst=2000)),
    Limit(None, rate(500_000, burst=50_000)),
    Limit(rate(1000, burst=1000)),
    Limit(rate(200, burst=20)),
)


def play_flapping(log: WorkersLog, seconds: int) -> None:
    """Each 0.3 s a limit has another value, most often one that has no room for what workers have."""
    chance = log.chance
    places = [(Setting.TOPIC, "persistent://t/n/a"), (Setting.TOPIC, "persistent://t/n/b"), (Setting.NAMESPACE, "t/n")]
    for place in places:
        log.limit(*place, chance.choice(FLAPPING))
    for worker in log.places:
        for topic in "ab":
            log.join(worker, topic)
    pace_ms = chance.choice((2, 4, 8, 20, 50))
    for turn in range(seconds * 1000 // pace_ms):
        for which in log.live:
            for _ in range(chance.choice((1, 1, 1, 5))):
                log.send(which, 1, chance.choice((50, 700)))
        log.advance(pace_ms * 1_000_000)
        if turn % (300 // pace_ms) == 0:
            log.limit(*chance.choice(places), chance.choice(FLAPPING))
    log.advance(NANOS_PER_SECOND)
    log.write()
