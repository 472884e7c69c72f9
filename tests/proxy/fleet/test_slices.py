"""The work for a fleet is done in slices: however many limits there are, a turn of the loop does a few of them.

Between its slices clients send, other timers fire and the clock goes on. The promise of a fleet holds all the same.
"""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from fleet.messages import Grants
from limiter import registry, sharing
from limiter.levels import Setting
from limiter.limiter import Limiter
from limiter.policies import Change, Value
from limiter.sharing import SharedLimits
from limiter.token_bucket import Limit, rate
from proxy.fleet import member_limits, service
from proxy.slices import AT_ONCE, Work
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
    monkeypatch.setitem(AT_ONCE, Work.FLEET, 20)
    monkeypatch.setattr(member_limits, "MOST_PUT", 5)
    for name, most in (("MOST_MEASURED", 10), ("_MOST_FIRST", 6), ("_MOST_OTHERS", 5)):
        monkeypatch.setattr(sharing, name, most)
    crowd.is_slow = True
    crowd.run(6)
    assert crowd.run(2) >= 0.97 * 2 * MANY * PER_SECOND
    assert 0 < crowd.most["assign"] <= 2 * 20
    for offering in ("a", "b"):
        crowd.offering = {offering}
        before = crowd.total["assign"]
        assert crowd.run(3) >= 0.7 * 3 * MANY * PER_SECOND
        assert crowd.total["assign"] - before >= MANY


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
    assert crowd.most["assign"] <= 2 * (AT_ONCE[Work.FLEET] + sharing._MOST_OTHERS)


def test_messages_that_wait_for_their_turn_are_bounded(crowd: FleetCrowd, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd.run(1)
    link, fleet, message = crowd.hub.links[0], crowd.proxies[0].fleet, Grants("front", "x", 1, 2).encode()
    monkeypatch.setattr(service, "MOST_UNREAD", 10 * (len(message) + service._MESSAGE_BYTES))

    def come() -> None:
        fleet._in_turn(lambda: 10 * AT_ONCE[Work.FLEET], "own")
        for _ in range(15):
            link.callbacks.on_grant(message)
            link.callbacks.on_report(message)

    before = link.counts.dropped["slow"]
    crowd.loop.run(come)
    assert link.counts.dropped["slow"] - before == 2 * 5, "reports take no place of grants"
    crowd.run(1)
    assert fleet._unread == {"reports": 0, "grants": 0}


def test_limiter_that_was_at_rest_is_measured_before_others(crowd: FleetCrowd) -> None:
    """A newcomer's first entries wait for its first report."""
    crowd.run(6)
    shared = crowd.proxies[0].fleet.shared
    (kind, limiters), *_ = shared._limiters.items()
    last = list(limiters.values())[-1]
    shared.forgotten(last)
    shared.made(last, crowd.loop.clock())
    shared.on_activity(last)
    crowd.loop.clock.advance(0.001)
    demanded, _ = shared.demands(crowd.loop.clock())
    assert (kind, last.scope.name, "messages") in demanded
    assert len(demanded) <= sharing.MOST_MEASURED
