"""All ways of one client out of a process that drains, up to a bound: each ends, and nothing that fits is dropped."""

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from proxy.session.leaving import (
    CALM_NS,
    CONSUMERS_NS,
    LONG_NS,
    MOST_ROUNDS,
    PRODUCERS_NS,
    REQUESTS_NS,
    Leaving,
    LeavingStage,
)

STEP_NS = 20_000_000
LATE = 400
"""The look from which on held entries are awaited no more."""
MOST = LATE + MOST_ROUNDS * (PRODUCERS_NS + max(CONSUMERS_NS, REQUESTS_NS)) // STEP_NS + 10


class ModelStreams:
    """Streams whose held entries, requests and closes take so many looks; -1: for ever.

    Further ones are opened so many times.

    Attributes:
        happened: Each thing that was done, in its order.
    """

    def __init__(self, held: int, requests: int, producers: int, consumers: int, newcomers: int) -> None:
        self.held, self.requests, self.newcomers = held, requests, newcomers
        self.takes = {"publish": producers, "dispatch": consumers}
        self.happened: list[str] = []
        self._closing: list[tuple[int, Callable[[], None]]] = []
        self.is_stopped = False
        self.looks = 0

    def pass_time(self) -> None:
        self.looks += 1
        due = [answered for at, answered in self._closing if at == self.looks]
        self._closing = [each for each in self._closing if each[0] != self.looks]
        for answered in due:
            self.happened.append("answered")
            answered()

    def stop_holding(self, until: int) -> Iterator[None]:
        self.is_stopped |= until >= self.looks * STEP_NS - LONG_NS
        yield

    def holds_stopped(self) -> bool:
        return self.is_stopped and self.holds_published()

    def holds_published(self) -> bool:
        return self.held < 0 or self.looks < self.held

    def awaits_answers(self) -> bool:
        return self.requests < 0 or self.looks < self.requests

    def asked_at(self) -> int:
        return -CALM_NS

    def awaits_late_answers(self) -> bool:
        return self.awaits_answers()

    def has_newcomers(self) -> bool:
        self.newcomers -= 1
        return self.newcomers >= 0

    def vacate(self, direction: str, answered: Callable[[], None]) -> Iterator[None]:
        drops = direction == "publish" and self.holds_published()
        self.happened.append(f"vacate {direction}{' with held' if drops else ''}")
        takes = self.takes[direction]
        if takes == 0:
            answered()
        else:
            self._closing.append((self.looks + takes if takes > 0 else -1, answered))
        yield

    def is_vacated(self) -> bool:
        return not self._closing

    def dismissals(self, direction: str) -> Iterator[bytes]:
        yield direction[:1].encode()


def at_once(units: Iterator[None], then: Callable[[], None]) -> None:
    for _ in units:
        pass
    then()


class Later:
    """Does work when it is asked to, as slices do in later turns of the loop."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Iterator[None], Callable[[], None]]] = []

    def __call__(self, units: Iterator[None], then: Callable[[], None]) -> None:
        self.waiting.append((units, then))

    def turn(self) -> None:
        waiting, self.waiting = self.waiting, []
        for units, then in waiting:
            at_once(units, then)


CLOSED = ["vacate publish", "vacate dispatch"]


def way_out(streams: ModelStreams, *, in_turns: bool) -> None:
    """Look at a client until it is gone."""
    later = Later()

    def clock() -> int:
        return streams.looks * STEP_NS

    def go(closes: bytes) -> None:
        streams.happened.append(f"go {closes.decode()}")

    leaving = Leaving(streams, later if in_turns else at_once, clock, go)
    while leaving.stage is not LeavingStage.GONE or later.waiting:
        leaving.look(is_late=streams.looks >= LATE)
        later.turn()
        streams.pass_time()
        later.turn()
        assert streams.looks < MOST, "every way ends"


@pytest.mark.parametrize("form", ["at once", "in turns"])
def test_every_way_out_ends_in_order(form: str) -> None:
    ways = product((0, 1, 3, LATE + 5, -1), (0, 2, -1), (0, 1, 4, -1), (0, 1, -1), (0, 1, MOST_ROUNDS + 2))
    for held, requests, producers, consumers, newcomers in ways:
        streams = ModelStreams(held, requests, producers, consumers, newcomers)
        way_out(streams, in_turns=form == "in turns")
        done = [each.removesuffix(" with held") for each in streams.happened if each != "answered"]
        assert done == [*CLOSED * min(MOST_ROUNDS, 1 + newcomers), "go dp"]
        fits, is_dropped = 0 <= held < LATE, "vacate publish with held" in streams.happened
        assert is_dropped is not fits, "held entries that fit are awaited"
        if producers > 0:
            assert streams.happened.index("answered") < streams.happened.index("vacate dispatch"), "receipts come first"
