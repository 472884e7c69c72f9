"""A client with many streams leaves in steps: no turn of the loop looks at more than a few of them."""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from proxy.session import leaving, streams
from proxy.slices import AT_ONCE, Work
from tests.proxy.conversation import BROKER, Peer, World
from tests.proxy.wire import body, name_of, producer, producer_success, subscribe, success

MANY = 1_500
MOST_LINES = AT_ONCE[Work.ENDINGS] * streams._LOOKED_AT_ONCE * 10
"""Lines of `proxy.session.streams` in one turn: some for each stream that each unit looks at."""
TOPICS = [f"persistent://acme/shop/{number}" for number in range(10)]


class LinesOfTurns:
    """Counts the lines of `proxy.session.streams` that each turn of a world's loop runs."""

    def __init__(self, world: World) -> None:
        self.most = self._now = 0
        world.loop.turned = self._turned

    def _turned(self) -> None:
        self.most, self._now = max(self.most, self._now), 0

    def trace(self, frame: FrameType, event: str, _arg: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != streams.__file__:
            return None
        self._now += event == "line"
        return self.trace


@pytest.fixture
def lines(world: World) -> Iterator[LinesOfTurns]:
    counted = LinesOfTurns(world)
    before = sys.gettrace()
    yield counted
    sys.settrace(before)


def with_streams(world: World) -> tuple[Peer, Peer]:
    """One connection with so many producers, and as many consumers."""
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    client >> [producer(number, TOPICS[number % 10]) for number in range(MANY)]
    broker.heard()
    broker >> [producer_success(number, f"p{number}") for number in range(MANY)]
    client >> [subscribe(number, TOPICS[number % 10], request_id=MANY + number) for number in range(MANY)]
    broker.heard()
    broker >> [success(MANY + number) for number in range(MANY)]
    client.heard()
    return client, broker


def leave(world: World) -> None:
    (session,) = world.sessions
    world.loop.run(lambda: session.leave(is_late=False))


def test_no_turn_looks_at_all_streams(world: World, lines: LinesOfTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "CALM_NS", 0)
    client, broker = with_streams(world)
    sys.settrace(lines.trace)
    leave(world)
    client >> producer(MANY, TOPICS[0], request_id=9_999)
    broker >> producer_success(name="late", request_id=9_999)
    closed = 0
    for _ in range(20):
        closes = [frame for frame in broker.heard() if name_of(frame).startswith("CLOSE")]
        closed += len(closes)
        broker >> [success(body(frame).request_id) for frame in closes]
        if not world.sessions:
            break
        leave(world)
    sys.settrace(None)
    assert closed == 2 * MANY + 1, "the newcomer had a round of its own"
    assert 0 < lines.most <= MOST_LINES
