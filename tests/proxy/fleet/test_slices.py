"""The work for a fleet is done in slices: however many limits there are, a turn of the loop does a few of them.

Between its slices clients send, other timers fire and the clock goes on. The promise of a fleet holds all the same.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from fleet.messages import Grants
from limiter import registry, sharing
from limiter.levels import Setting
from limiter.limiter import Limiter
from limiter.policies import Change, Value
from limiter.sharing import SharedLimits
from limiter.token_bucket import Limit, rate
from proxy.fleet import service
from proxy.slices import AT_ONCE, PiecesInOrder, Work
from tests.proxy.fleet.crowd import BURST, MANY, PER_SECOND, FleetCrowd


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetCrowd]:
    crowd = FleetCrowd(monkeypatch)
    yield crowd
    crowd.loop.close()


def test_limits_are_kept_while_grants_are_half_applied(crowd: FleetCrowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn does a few limits and takes a millisecond, so that grants and reports take longer than a cycle.

    The members offer by turns, so that each share goes up in one and down in the other.
    """
    monkeypatch.setitem(AT_ONCE, Work.FLEET, 3)
    crowd.is_slow = True
    crowd.run(6)
    assert crowd.run(2) >= 0.97 * 2 * MANY * PER_SECOND
    assert 0 < crowd.most["assign"] <= 2 * 4
    for offering in ("a", "b", "a", "b"):
        crowd.offering = {offering}
        before = crowd.total["assign"]
        assert crowd.run(3) >= 0.7 * 3 * MANY * PER_SECOND
        assert crowd.total["assign"] - before >= MANY


def test_limits_of_which_a_report_measures_a_few_are_all_used_up(
    crowd: FleetCrowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "MOST_MEASURED", 40)
    crowd.run(6)
    reports = len(crowd.hub.links[1].reported_at)
    assert crowd.run(2) >= 0.97 * 2 * MANY * PER_SECOND
    assert 2 / 0.25 * MANY / 40 * 0.8 <= len(crowd.hub.links[1].reported_at) - reports <= 2 / 0.025


def test_changed_limit_concerns_few_limiters_at_rest_in_a_turn(
    crowd: FleetCrowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_LOOKED_AT", 1)
    crowd.run(5)
    proxy = crowd.proxies[0]
    for _, stream in crowd.streams[:MANY]:
        crowd.loop.run(proxy.registry.close, stream, proxy.clock())
    crowd.loop.advance(0.3)
    assert proxy.fleet.member.total == MANY
    marked, marks = list[int](), [0]
    outdated = SharedLimits.outdated

    def counted(shared: SharedLimits, limiter: Limiter) -> None:
        marks[0] += 1
        outdated(shared, limiter)

    monkeypatch.setattr(SharedLimits, "outdated", counted)
    value = Value(Limit(rate(PER_SECOND - 1, burst=BURST)), "file")
    proxy.policies.put("publish", Setting.TOPIC_OF_BROKER, "", value)
    crowd.loop.run(proxy.registry.change, [Change("publish", Setting.TOPIC_OF_BROKER, "")], proxy.clock())
    marked.append(marks[0])
    while proxy.registry.is_changing:
        crowd.loop.run(proxy.registry.go_on, proxy.clock())
        marked.append(marks[0])
    assert marked[-1] == MANY
    assert max(later - earlier for earlier, later in pairwise([0, *marked])) <= registry.SLICE
    crowd.most.clear()
    crowd.loop.advance(1)
    assert proxy.fleet.member.total == 0
    assert crowd.most["assign"] <= AT_ONCE[Work.FLEET]


def test_messages_that_wait_for_their_turn_are_bounded(crowd: FleetCrowd, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd.run(1)
    link, message = crowd.hub.links[0], Grants("front", "x", 1, 2).encode()
    monkeypatch.setattr(service, "MOST_UNREAD", 10 * len(message))

    def come() -> None:
        crowd.proxies[0].fleet._work._is_running = True  # as while a piece is done
        for _ in range(15):
            link.callbacks.on_grant(message)

    before = link.counts.dropped["slow"]
    crowd.loop.run(come)
    assert link.counts.dropped["slow"] - before == 5


def test_a_piece_that_fails_does_not_keep_the_next_from_its_turn() -> None:
    done = list[str]()

    def failing(units: Any) -> None:
        try:
            for _ in units:
                pass
        except ValueError:
            done.append("failed")

    def piece(name: str, *, fails: bool = False) -> Callable[[], Any]:
        def units() -> Any:
            done.append(name)
            yield
            if name == "first":
                for each in (second, third):
                    pieces.add(each)
                pieces.add(third, once=True)
            if fails:
                raise ValueError(name)

        return units

    pieces, second, third = PiecesInOrder(failing), piece("second", fails=True), piece("third")
    pieces.add(piece("first"))
    assert done == ["first", "second", "third", "failed"]
