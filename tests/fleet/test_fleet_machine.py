"""P8 in every phase: whatever happens to members, coordinators, clocks and messages, all together keep one limit.

When the network has recovered, all members know the sets of limits that differ.
"""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from fleet.messages import Quota, ShareKey
from tests.fleet.world import KEY, MS, RATE, SECOND, Clock, Process, World
from tests.limiter.long_run import Counted, long_run

OTHER = ShareKey.of("publish tenant t", "bytes")
LOADS = st.sampled_from([0.0, 3.0, 90.0, 400.0, 1e6])
VERSIONS = st.sampled_from(["", "1.0"])
WRITTEN = st.integers(0, 2)
CLOCKS = st.builds(Clock, st.integers(0, 10**12), st.integers(-2400, 2400))


class Fleet(Counted):
    """The world checks the sum of the shares in use after every message, and the passed tokens in every step."""

    @initialize(
        seed=st.integers(0, 2**32),
        clock=CLOCKS,
        founders=st.integers(0, 3),
        at_once=st.sampled_from([None, None, 1, 2]),
    )
    def begin(self, seed: int, clock: Clock, founders: int, at_once: int | None) -> None:
        """Begin with a fleet at rest, most often. Shares may be put in force one after the other."""
        self.world = World(seed)
        self.world.most_at_once = at_once
        self.world.elect(clock)
        for _ in range(founders):
            self.world.join({KEY: 1e6, OTHER: 1e6}, clock)
        if founders:
            self.world.run(6 * SECOND, 50 * MS)

    def process(self, index: int) -> Process:
        return self.world.processes[index % len(self.world.processes)]

    @precondition(lambda self: len(self.world.processes) < 5)
    @rule(load=LOADS, other=LOADS, clock=CLOCKS, streams=st.integers(1, 9), written=WRITTEN, version=VERSIONS)
    def join(self, load: float, other: float, clock: Clock, streams: int, written: int, version: str) -> None:
        self.world.join({KEY: load, OTHER: other}, clock, written, version).streams = streams

    @precondition(lambda self: self.world.processes)
    @rule(index=st.integers(0, 4))
    def crash(self, index: int) -> None:
        self.world.crash(self.process(index))

    @precondition(lambda self: self.world.processes)
    @rule(index=st.integers(0, 4))
    def leave(self, index: int) -> None:
        self.world.leave(self.process(index))

    @precondition(lambda self: self.world.processes)
    @rule(index=st.integers(0, 4), stopped=st.booleans())
    def stop(self, index, stopped) -> None:
        self.process(index).stopped = stopped

    @precondition(lambda self: self.world.processes)
    @rule(index=st.integers(0, 4), ahead=st.integers(1, 5 * SECOND))
    def jump(self, index: int, ahead: int) -> None:
        """A clock jumps ahead: the bucket earns no more than until the end of its lease, which comes sooner."""
        process = self.process(index)
        if process.clock.at(self.world.now) >= process.until:
            process.clock.offset += ahead

    @precondition(lambda self: self.world.processes)
    @rule(index=st.integers(0, 4), load=LOADS, key=st.sampled_from([KEY, OTHER]))
    def offer(self, index: int, load: float, key: ShareKey) -> None:
        self.world.offer(self.process(index), key, load)

    @rule(tokens=st.sampled_from([100, 1000, 5000]), members=st.integers(0, 31))
    def configure(self, tokens: int, members: int) -> None:
        """Give some members, one a bit, another value of the limit."""
        for index, process in enumerate(self.world.processes):
            if members >> index & 1:
                self.world.offer(process, KEY, process.offered[KEY], Quota(tokens, SECOND, RATE.burst))

    @precondition(lambda self: self.world.processes)
    @rule(index=st.integers(0, 4), written=WRITTEN)
    def write(self, index: int, written: int) -> None:
        self.process(index).digest.written = written

    @rule()
    def agree(self) -> None:
        """Let slow messages arrive and earlier leases end, heal the network, and compare the sets of limits."""
        self.go_on(self.world.delay[1])
        self.world.heal()
        self.go_on(12 * SECOND)
        self.world.check_limit_sets()
        self.world.check_version_sets()

    @rule(clock=CLOCKS)
    def take_over(self, clock: Clock) -> None:
        self.world.elect(clock)

    @precondition(lambda self: self.world.coordinators)
    @rule(index=st.integers(0, 9))
    def kill(self, index: int) -> None:
        self.world.kill_coordinator(index % len(self.world.coordinators))

    @precondition(lambda self: self.world.processes)
    @rule(index=st.integers(0, 4), cut=st.booleans())
    def cut(self, index, cut) -> None:
        self.process(index).cut = cut

    @precondition(lambda self: self.world.processes)
    @rule(index=st.integers(0, 4), cut=st.booleans())
    def cut_one_way(self, index, cut) -> None:
        """Grants arrive, reports do not."""
        self.process(index).mute = cut

    @rule(
        loss=st.sampled_from([0.0, 0.2, 0.5]),
        grant_loss=st.sampled_from([0.0, 0.2, 0.5]),
        doubled=st.sampled_from([0.0, 0.5]),
        delay=st.sampled_from([2 * MS, 40 * MS, 600 * MS, 2500 * MS]),
    )
    def network(self, loss: float, grant_loss: float, doubled: float, delay: int) -> None:
        """Delays differ by message, so messages overtake each other."""
        self.world.loss, self.world.grant_loss, self.world.doubled = loss, grant_loss, doubled
        self.world.delay = (1 * MS, delay)

    @rule()
    def wait(self) -> None:
        self.go_on(2500 * MS)

    @rule()
    def wait_long(self) -> None:
        self.go_on(6 * SECOND)

    def go_on(self, span: int) -> None:
        self.world.run(span, 5 * MS if span < SECOND else 25 * MS)

    @invariant()
    def time_goes_on(self) -> None:
        if hasattr(self, "world"):
            self.go_on(self.world.random.choice([5 * MS, 20 * MS, 100 * MS, 300 * MS, 1000 * MS]))


TestFleet = long_run(Fleet, at_least=800)
