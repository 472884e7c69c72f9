"""What a proxy of several workers would have logged: their letters take a while, and count when they are heard."""

from dataclasses import replace
from random import Random

from limiter.levels import Setting
from limiter.limiter import Limiter
from limiter.rates import NANOS_PER_SECOND, Limit, Mode
from limiter.stream import Stream
from tests.compliance.judging.gate_log import GateLog, some_limit
from tests.limiter.workers.together import Worker, Workers

MODES: tuple[Mode, ...] = ("enforce", "enforce", "observe", "reject")
REPORT_NS = 100_000_000
"""So often workers tell what only counts."""
MOST_UNDER_WAY_NS = 3_000_000
MOST_HELD_BACK_NS = 15_000_000
"""Behind a change of limits letters may take longer: everybody is busy with it."""


class WorkersLog(GateLog):
    """Two workers under one judge's limits, and the lines that were written so far."""

    def __init__(self, chance: Random, workers: int = 2) -> None:
        super().__init__(chance)
        self.world = Workers(workers)
        self.journal, self.gate = self.world.journal, self.world.gate
        self.journal.cut = self.cut
        self.live: list[tuple[Worker, Stream]] = []
        self.reports_at = REPORT_NS
        self.letters_from = 0

    def limit(self, setting: Setting, name: str, limit: Limit | None) -> None:
        """A change ends the lines that are under way. Letters may be, too: what they tell counts behind it."""
        self.change()
        self.world.limit(setting, name, limit)
        self.world.apply()
        if self.chance.random() < 0.5:
            self.letters_from = self.world.clock.now + self.chance.randrange(MOST_HELD_BACK_NS)

    def cut(self, one: Stream | Limiter, now: int) -> None:
        """A limit that nobody was under gets its value when somebody comes: its line begins there."""
        if isinstance(one, Limiter) and now > self.ended:
            assert one not in self.journal.limiters
            self.began[one.scope] = now

    def join(self, worker: Worker, topic: str, *, by_entry: bool = False) -> Stream:
        stream = worker.open(topic, lambda _stream, _entry: None, by_entry=by_entry)
        self.live.append((worker, stream))
        return stream

    def leave(self, which: tuple[Worker, Stream]) -> None:
        worker, stream = which
        self.live.remove(which)
        worker.deputy.close(stream, self.world.clock.now)

    def send(self, which: tuple[Worker, Stream], messages: int, size: int) -> None:
        worker, stream = which
        self.world.offer(worker, stream, messages, size)

    def advance(self, span_ns: int) -> None:
        """Letters that are under way arrive within some milliseconds."""
        end = self.world.clock.now + span_ns
        while self.world.clock.now < end:
            letters = self.world.clock.now + self.chance.randrange(1, MOST_UNDER_WAY_NS)
            self.world.run_until(min(end, self.due, self.reports_at, letters))
            if self.world.clock.now >= self.reports_at:
                self.reports_at += REPORT_NS
                for worker in self.world.workers:
                    worker.up.extend(worker.deputy.report())
            if self.world.clock.now >= letters:
                self._deliver()
            if self.world.clock.now >= self.due:
                self.write()
                self.due += self.interval

    def write(self) -> None:
        self.now = self.world.clock.now
        super().write()

    def _deliver(self) -> None:
        """Some letters, of each side in order."""
        if self.world.clock.now < self.letters_from:
            return
        for worker in self.world.workers:
            for _ in range(self.chance.choice((1, 5, 100))):
                if not (worker.hear_one() | worker.obey_one()):
                    break


def play_workers(log: WorkersLog, seconds: int) -> None:
    """Anything happens for so long."""
    chance = log.chance
    places = [(Setting.TOPIC, f"persistent://t/n/{topic}") for topic in "ab"]
    places.append((Setting.NAMESPACE, "t/n"))
    modes = {place: chance.choice(MODES) for place in places}
    for place in places[:2]:
        log.limit(*place, replace(some_limit(chance), mode=modes[place]))
    by_entry = chance.random() < 0.2
    end = log.world.clock.now + seconds * NANOS_PER_SECOND
    while log.world.clock.now < end:
        what = chance.random()
        if what < 0.15 and len(log.live) < 6:
            log.join(chance.choice(log.world.workers), chance.choice("ab"), by_entry=by_entry)
        elif what < 0.2 and log.live:
            log.leave(chance.choice(log.live))
        elif what < 0.7 and log.live:
            which = chance.choice(log.live)
            messages, size = chance.choice((1, 1, 1, 10, 100, 1000)), chance.choice((1, 1, 10, 100, 5000))
            for _ in range(chance.choice((1, 1, 5, 50))):
                log.send(which, messages, size * messages)
        elif what < 0.72:
            place = chance.choice(places)
            limit = replace(some_limit(chance), mode=modes[place]) if chance.random() < 0.8 else None
            log.limit(*place, limit)
        else:
            log.advance(chance.choice((1, 30, 300, 1000, 3000)) * 1000 * chance.randrange(1, 1000))
    log.advance(NANOS_PER_SECOND)
    log.write()
