"""The modes of a limit, and of publishing, as a real broker and real clients meet them."""

import time
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Line
from tests.real.conftest import IS_DIRECT
from tests.real.demand import publishing
from tests.real.flows import Flow, Load, Played
from tests.real.metrics import counted
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.stages import Stage, open_stages
from tests.real.steadiness import assert_never_above, assert_used
from tests.real.traffic import open_sender

pytestmark = pytest.mark.real

OBSERVED, PAUSED, PENDING = (topic_name("modes", name) for name in ("observed", "paused", "pending"))
LIMIT = 100
OFFERED = 300
MOST_PENDING = 20
"""Pulsar's test has 1000, and a bookie that is slow on purpose; this broker answers 1000 before they are sent."""


def of_topic(name: str, messages: int, **more: str) -> dict[str, Any]:
    return {"limits": {"topics": {name: {"publish": {"messages": messages, **more}}}}}


CONFIGS = {
    "observe": of_topic(OBSERVED, LIMIT, mode="observe"),
    "pause": {"publish": {"mode": "pause"}, **of_topic(PAUSED, LIMIT)},
    "pending": {"publish": {"max_pending": MOST_PENDING}},
}


@pytest.fixture(scope="module")
def stages(
    real_broker: StandaloneBroker, rest: PulsarRest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Stage]]:
    if IS_DIRECT:
        pytest.skip("the broker itself has not the modes of Sluice (SLUICE_TEST_DIRECT)")
    rest.ensure_namespace("modes")
    with open_stages(real_broker, CONFIGS, tmp_path_factory.mktemp("sluices")) as stages:
        yield stages


@pytest.fixture(scope="module")
def played(stages: dict[str, Stage]) -> Played[Any]:
    flows = {
        "pause": Flow(stages["pause"], Load((PAUSED,), count=6 * LIMIT)),
        "pending": Flow(stages["pending"], Load((PENDING,), count=2000, pending=1000)),
    }
    scenes: dict[str, Callable[[], Any]] = {name: flow.played for name, flow in flows.items()}
    scenes |= {"observe": observe(stages["observe"])}
    return Played(scenes)


def observe(stage: Stage) -> Callable[[], list[dict[str, Any]]]:
    """Three times the limit for five seconds; returns what `/sluice/streams` said of it, twice at each look."""
    stage.warm_up(OBSERVED)
    sender = open_sender(stage.client(), OBSERVED, "p", send_timeout_millis=0)

    def play() -> list[dict[str, Any]]:
        views = [stage.sluice.get("/sluice/streams") for _ in range(2)]
        with publishing(sender, per_s=OFFERED):
            end = time.monotonic() + 5
            while time.monotonic() < end:
                time.sleep(0.1)
                views += [stage.sluice.get("/sluice/streams") for _ in range(2)]
        sender.producer.flush()
        return [*views, *(stage.sluice.get("/sluice/streams") for _ in range(2))]

    return play


class Look(NamedTuple):
    """How many messages the limit would have passed and would still hold, at a moment between two of Sluice's clock."""

    since: float
    until: float
    passed: int
    held: int


def looks(views: list[dict[str, Any]]) -> list[Look]:
    """One of each two answers: of the first, what it counts; of both, when, as each reads the clock and then counts."""
    moments = []
    for view, following in zip(views[::2], views[1::2], strict=True):
        (stream,) = view["streams"]
        held = stream["observed"]["held_messages"]
        since, until = (answer["monotonic_ms"] / 1000 for answer in (view, following))
        moments.append(Look(since, until, stream["offered_messages"] - held, held))
    return moments


def test_an_observed_limit_holds_nothing(played: Played[Any]) -> None:
    (last,) = played["observe"][-1]["streams"]
    assert (last["held_messages"], last["throttled_ms"]) == (0, 0)
    assert last["passed_messages"] == last["offered_messages"] > 0


def test_observed_limit_counts_as_an_enforced_one_would(played: Played[Any], stages: dict[str, Stage]) -> None:
    seen = looks(played["observe"])
    for first, last in combinations(seen, 2):
        assert last.passed - first.passed <= LIMIT / 10 + LIMIT * (last.until - first.since) + 1
    late_s = counted(stages["observe"].sluice, "sluice_loop_lag_seconds_total")  # it rings late for these, too
    first = seen[0]
    for before, last in pairwise(seen):
        if before.held < LIMIT * (last.until - before.since):  # some of the time nothing may have been left to pass
            first = last
        assert last.passed - first.passed >= LIMIT * (last.since - first.until - late_s) - 1
    (stream,) = played["observe"][-1]["streams"]
    assert stream["observed"]["exceeded_messages"] == 0


def test_pausing_the_connection_is_exact_too_and_each_pause_ends(played: Played[Any], stages: dict[str, Stage]) -> None:
    flow = played["pause"]
    flow.assert_whole()
    assert_never_above(flow.arrivals, Line(LIMIT, burst=LIMIT / 10), played.begun["pause"])
    assert_used(stages["pause"].sluice, "publish", "topic", PAUSED)
    assert_each_pause_ended(stages["pause"], "publish_rate")


def test_too_many_publishes_without_an_answer_pause_and_each_pause_ends(
    played: Played[Any], stages: dict[str, Stage]
) -> None:
    """MessagePublishBufferThrottleTest.testConnectionThrottled: 2000 at once."""
    played["pending"].assert_whole()
    assert_each_pause_ended(stages["pending"], "pending_publishes")


def assert_each_pause_ended(stage: Stage, cause: str) -> None:
    pauses, resumes = (counted(stage.sluice, f"sluice_{event}_total", cause=cause) for event in ("pauses", "resumes"))
    assert pauses == resumes >= 1
    assert counted(stage.sluice, "sluice_reading_paused") == 0
