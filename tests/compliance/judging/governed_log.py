"""What one process would have logged whose limits come from policies: they come, go, observe, refuse and hold."""

from dataclasses import replace
from random import Random
from typing import Any

from limiter.activity import ActivityReader
from limiter.levels import Setting
from limiter.limiter import Entry, Limiter, Scope, Stream, StreamName, rejecting
from limiter.policies import Value
from limiter.restart import FirstBalances
from limiter.token_bucket import NANOS_PER_SECOND, LeftBalance, Limit, Mode, TokenBucket
from tests.compliance.judging.scheduler_log import SchedulerLog, some_limit, some_rate
from tests.limiter.world import Governed

MODES: tuple[Mode, ...] = ("enforce", "enforce", "observe", "reject")


class GovernedLog(SchedulerLog):
    """A registry and its scheduler, and the lines that were written so far."""

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self.world: Any = self.make_world()
        self.journal, self.scheduler = self.world.journal, self.world.scheduler
        self.journal.read_by(ActivityReader(on_cut=self.cut))
        self.live: list[tuple[Any, Stream]] = []

    def make_world(self) -> Any:
        return Governed()

    @property
    def places(self) -> list[Any]:
        """Where streams can be opened."""
        return [None]

    def limit(self, setting: Setting, name: str, limit: Limit | None) -> None:
        """A change ends the lines that are under way."""
        self.change()
        self.put(setting, name, limit)
        self.world.apply()

    def put(self, setting: Setting, name: str, limit: Limit | None) -> None:
        self.world.policies.put("publish", setting, name, Value(limit, "rest") if limit is not None else None)

    def cut(self, subject: Stream | Limiter, now: int) -> None:
        """A limit that nobody was under gets its value when somebody comes: its line begins there."""
        if isinstance(subject, Limiter) and now > self.ended:
            assert subject not in self.journal.limiters
            self.began[subject.scope] = now

    def join(self, place: Any, topic: str, *, by_entry: bool = False) -> Stream:
        self.numbers += 1
        stream: Stream = self.world.open(topic, by_entry=by_entry)
        stream.name = StreamName("publish", "t", "n", topic, self.numbers)
        self.live.append((place, stream))
        return stream

    def leave(self, which: tuple[Any, Stream]) -> None:
        self.live.remove(which)
        self.world.registry.close(which[1], self.world.clock.now)

    def send(self, which: tuple[Any, Stream], messages: int, size: int) -> None:
        scheduler, stream, now = self.scheduler, which[1], self.world.clock.now
        scheduler.count_offered(stream, 1, messages, size)
        if scheduler.pass_entry(stream, messages, size, now):
            return
        limiter = None if stream.held else rejecting(stream, now)
        if limiter is not None:
            scheduler.count_rejected(stream, limiter, messages, size)
        else:
            scheduler.hold(stream, Entry(b"", messages, size, size, now, charged=stream.charged(1, messages)), now)

    def disturb(self) -> None:
        """What happens to one of several processes only."""

    def advance(self, span_ns: int) -> None:
        end = self.world.clock.now + span_ns
        while self.world.clock.now < end:
            self.world.run_until(min(end, self.due))
            if self.world.clock.now >= self.due:
                self.write()
                self.due += self.interval

    def write(self) -> None:
        self.now = self.world.clock.now
        super().write()


class RestartedLog(GovernedLog):
    """The log of a process that begins with debts of the one before, or with empty buckets."""

    def make_world(self) -> Any:
        return Governed(first=self.chance.choice((FirstBalances(empty_since=0), self._debts())))

    def limit(self, setting: Setting, name: str, limit: Limit | None) -> None:
        """Limits before the first stream are those of the file: no line of a change hides the first balance."""
        if self.numbers:
            super().limit(setting, name, limit)
        else:
            self.put(setting, name, limit)

    def join(self, place: Any, topic: str, *, by_entry: bool = False) -> Stream:
        """As in the product, the first line of a limiter begins when the limiter is made."""
        before = {*self.world.registry.limiters}
        stream = super().join(place, topic, by_entry=by_entry)
        self.began |= {scope: self.world.clock.now for scope in self.world.registry.limiters if scope not in before}
        return stream

    def _debts(self) -> FirstBalances:
        scopes = [Scope("publish", "topic", f"persistent://t/n/{topic}", "t", "n") for topic in "ab"]
        scopes.append(Scope("publish", "namespace", "t/n", "t", "n"))
        return FirstBalances({scope: tuple(self._debt() for _ in range(4)) for scope in scopes})

    def _debt(self) -> LeftBalance:
        now, then = some_rate(self.chance), some_rate(self.chance)
        bucket = TokenBucket(then, 0)
        bucket.take(then.burst + self.chance.choice((0, 1, 5 * then.tokens)), 0)
        bucket.change(now, 0)
        left = bucket.left(0)
        assert left is not None
        return left


class Player:
    """Has anything happen to a log.

    Args:
        log: Which.
    """

    def __init__(self, log: GovernedLog) -> None:
        self.log, self.chance = log, log.chance
        self.places = [(Setting.TOPIC, f"persistent://t/n/{topic}") for topic in "ab"]
        self.places.append((Setting.NAMESPACE, "t/n"))
        self.modes = {place: self.chance.choice(MODES) for place in self.places}
        for place in self.places[:2]:
            log.limit(*place, replace(some_limit(self.chance), mode=self.modes[place]))
        self.by_entry = self.chance.random() < 0.2

    def step(self) -> None:
        log, chance, draw = self.log, self.chance, self.chance.random()
        if draw < 0.15 and len(log.live) < 6:
            log.join(chance.choice(log.places), chance.choice("ab"), by_entry=self.by_entry)
        elif draw < 0.2 and log.live:
            log.leave(chance.choice(log.live))
        elif draw < 0.7 and log.live:
            self.send()
        elif draw < 0.72:
            self.change()
        elif draw < 0.725:
            log.disturb()
        else:
            log.advance(chance.choice((1, 30, 300, 1000, 3000)) * 1000 * chance.randrange(1, 1000))

    def send(self) -> None:
        chance, which = self.chance, self.chance.choice(self.log.live)
        messages, size = chance.choice((1, 1, 1, 10, 100, 1000)), chance.choice((1, 1, 10, 100, 5000))
        for _ in range(chance.choice((1, 1, 5, 50))):
            self.log.send(which, messages, size * messages)

    def change(self) -> None:
        chance, place = self.chance, self.chance.choice(self.places)
        if chance.random() < 0.2:
            self.modes[place] = chance.choice(MODES)
        limit = replace(some_limit(chance), mode=self.modes[place]) if chance.random() < 0.8 else None
        self.log.limit(*place, limit)


def play_governed(log: GovernedLog, seconds: int) -> None:
    """Anything happens for so long."""
    player = Player(log)
    end = log.world.clock.now + seconds * NANOS_PER_SECOND
    while log.world.clock.now < end:
        player.step()
    log.advance(NANOS_PER_SECOND)
    log.write()
