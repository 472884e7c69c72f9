"""With the official client, against the stand-in broker."""

import time
from pathlib import Path
from secrets import token_hex

import pytest

from adminrest.client import AdminClient
from bench.harness import BenchError
from bench.limits import dispatch_rows
from bench.limits.dispatch_rows import SUBSCRIPTION, TICK_S, BrokerBacklog, Drained, drain, fill, stand_by
from bench.limits.trial import Peer, TrialStage
from loadgen.load.clients import SharedConsumer

REST = AdminClient("http://127.0.0.1:1")


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{token_hex(4)}"


def stage(service_url: str) -> TrialStage:
    return TrialStage(Peer("peer", service_url, REST, "g"), service_url, REST, Path())


def test_a_backlog_is_drained_once_by_whoever_consumes(service_url, topic):
    fill(service_url, [BrokerBacklog(topic, 300, batch=50), BrokerBacklog(topic, 3, size=1000)])
    begin = time.monotonic()
    consumers = [SharedConsumer(name, topic, SUBSCRIPTION, 10) for name in ("one", "other")]
    drained = drain(stage(service_url), consumers, 0.2)
    arrivals = [arrival for of_one in drained.by_consumer for arrival in of_one]
    assert len(drained.by_consumer) == 2
    assert sorted(size for _, size in arrivals) == [100] * 300 + [1000] * 3
    assert begin < drained.complete_at
    assert drained.times == sorted(at for at, _ in arrivals)
    assert begin < drained.times[0]


def test_a_backlog_in_one_topic_does_not_reach_another(service_url, topic):
    other = f"{topic}-other"
    fill(service_url, [BrokerBacklog(topic, 5), BrokerBacklog(other, 7)])
    consumers = [SharedConsumer(name, name, SUBSCRIPTION) for name in (topic, other)]
    assert [len(arrivals) for arrivals in drain(stage(service_url), consumers, 0.1).by_consumer] == [5, 7]


def test_nothing_delivered_is_an_error_that_names_the_peer(service_url, topic, monkeypatch):
    monkeypatch.setattr(dispatch_rows, "FIRST_S", 0.0)
    with pytest.raises(BenchError, match=r"^peer: nothing was delivered within 0 s$"):
        drain(stage(service_url), [SharedConsumer("one", topic, SUBSCRIPTION)], 0.1)


def test_a_backlog_that_is_not_stored_in_time_is_an_error(service_url, topic, monkeypatch):
    monkeypatch.setattr(dispatch_rows, "FILL_S", -1.0)
    # What is in a batch that is not full waits for a tenth of a second; many messages that have left: 10 s, at the end.
    with pytest.raises(BenchError, match=rf"^{topic}: only 0 of 200 stored: "):
        fill(service_url, [BrokerBacklog(topic, 200, batch=1000)])


class Sleeper:
    """A clock that only sleeping moves, by more than was asked for."""

    def __init__(self, *too_long: float) -> None:
        self.now = 100.0
        self._too_long = iter(too_long)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + next(self._too_long)


def test_only_rounds_later_than_a_tick_are_reported(monkeypatch):
    monkeypatch.setattr(dispatch_rows, "time", Sleeper(0.001, 0.2, 0.9 * TICK_S, 0.1, 0.0))
    looks: list[float] = []

    def is_over(now: float) -> bool:
        looks.append(now)
        return len(looks) == 5

    late = stand_by(is_over)
    assert [end for _, end in late] == [looks[1], looks[3]]
    assert [end - begin for begin, end in late] == pytest.approx([0.2, 0.1])
    assert Drained(stood=late).longest_pause_s == pytest.approx(0.2)
    assert Drained().longest_pause_s == 0.0
