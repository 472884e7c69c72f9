"""The modes of a limit, and of publishing, as a real broker and real clients meet them."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loadgen.real.jars import jars
from loadgen.real.java import require_java
from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Arrival, Line
from tests.real.conftest import IS_DIRECT
from tests.real.demand import publishing
from tests.real.flows import Flow, Load, Played
from tests.real.metrics import counted
from tests.real.probe import Probe
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.stages import Stage, open_stages
from tests.real.steadiness import assert_never_above, assert_steady
from tests.real.traffic import open_sender, read_all

pytestmark = pytest.mark.real

OBSERVED, PAUSED, PENDING, REFUSED, JAVA = (
    topic_name("modes", name) for name in ("observed", "paused", "pending", "refused", "java")
)
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
    "reject": of_topic(REFUSED, 20, mode="reject"),
    "reject to java": of_topic(JAVA, 20, mode="reject"),
}
SOURCE = Path(__file__).with_name("RejectedPublisher.java")


@pytest.fixture(scope="module")
def stages(
    real_broker: StandaloneBroker, rest: PulsarRest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Stage]]:
    if IS_DIRECT:
        pytest.skip("the broker itself has not the modes of Sluice (SLUICE_TEST_DIRECT)")
    for namespace in ("modes", "probe"):
        rest.ensure_namespace(namespace)
    with open_stages(real_broker, CONFIGS, tmp_path_factory.mktemp("sluices")) as stages:
        yield stages


@pytest.fixture(scope="module")
def played(stages: dict[str, Stage]) -> Played[Any]:
    flows = {
        "pause": Flow(stages["pause"], Load((PAUSED,), count=6 * LIMIT)),
        "pending": Flow(stages["pending"], Load((PENDING,), count=2000, pending=1000)),
        "reject": Flow(stages["reject"], Load((REFUSED,), count=60)),
    }
    scenes: dict[str, Callable[[], Any]] = {name: flow.played for name, flow in flows.items()}
    scenes["observe"] = observe(stages["observe"])
    at_broker = stages["observe"].at_broker
    return Played(Probe(at_broker, topic_name("probe", "beside-modes")), scenes)


def observe(stage: Stage) -> Callable[[], list[dict[str, Any]]]:
    """Three times the limit for five seconds; returns what `/sluice/streams` said of it, again and again."""
    stage.warm_up(OBSERVED)
    sender = open_sender(stage.client(), OBSERVED, "p", send_timeout_millis=0)

    def play() -> list[dict[str, Any]]:
        views = []
        with publishing(sender, per_s=OFFERED):
            end = time.monotonic() + 5
            while time.monotonic() < end:
                time.sleep(0.1)
                views.append(stage.sluice.get("/sluice/streams"))
        sender.producer.flush()
        return [*views, stage.sluice.get("/sluice/streams")]

    return play


def would_have_passed(views: list[dict[str, Any]]) -> list[Arrival]:
    """What enforcing would have passed on between two views, by Sluice's clock."""
    counts = [(0.0, 0)]
    for view in views:
        (stream,) = view["streams"]
        passed = stream["offered_messages"] - stream["observed"]["held_messages"]
        counts.append((view["monotonic_ms"] / 1000, passed))
    return [(at, passed - before) for (_, before), (at, passed) in pairwise(counts)]


def test_an_observed_limit_holds_nothing_and_tells_what_it_would_hold(played: Played[Any]) -> None:
    views = played["observe"]
    (last,) = views[-1]["streams"]
    seconds = (views[-2]["monotonic_ms"] - views[0]["monotonic_ms"]) / 1000
    assert (last["held_messages"], last["throttled_ms"], last["observed"]["exceeded_messages"]) == (0, 0, 0)
    assert last["passed_messages"] == last["offered_messages"] >= OFFERED * (seconds - played.stall_s)
    would = would_have_passed(views)
    assert_never_above(would, Line(LIMIT, burst=LIMIT / 10), played.stall_s)
    passed = sum(messages for _, messages in would)
    assert passed >= 0.99 * LIMIT * (views[-1]["monotonic_ms"] / 1000 - would[0][0] - played.stall_s)


def test_pausing_the_connection_is_exact_too_and_each_pause_ends(played: Played[Any], stages: dict[str, Stage]) -> None:
    flow = played["pause"]
    flow.assert_whole()
    assert_never_above(flow.arrivals, Line(LIMIT, burst=LIMIT / 10), played.stall_s)
    assert_steady(flow.arrivals, Line(LIMIT, burst=LIMIT / 10), 5, played.stall_s)
    assert_each_pause_ended(stages["pause"], "publish_rate")


def test_too_many_publishes_without_an_answer_pause_and_each_pause_ends(
    played: Played[Any], stages: dict[str, Stage]
) -> None:
    """MessagePublishBufferThrottleTest.testConnectionThrottled: 2000 at once."""
    played["pending"].assert_whole()
    assert_each_pause_ended(stages["pending"], "pending_publishes")


def assert_each_pause_ended(stage: Stage, cause: str) -> None:
    pauses, resumes = (counted(stage.sluice, f"sluice_{what}_total", cause=cause) for what in ("pauses", "resumes"))
    assert pauses == resumes >= 1
    assert counted(stage.sluice, "sluice_throttle_count") == 0


def test_what_is_refused_a_python_client_sends_again_until_it_is_stored_once_and_in_order(
    played: Played[Any], stages: dict[str, Stage]
) -> None:
    flow = played["reject"]
    flow.assert_whole()
    assert_never_above(flow.arrivals, Line(20, burst=2), played.stall_s)
    sluice = stages["reject"].sluice
    assert counted(sluice, "sluice_messages_rejected_total") >= 1
    assert counted(sluice, "sluice_connections_accepted_total") > 2, "it closes its connection and makes a new one"


@pytest.mark.jdk
def test_what_is_refused_fails_alone_in_a_java_client(stages: dict[str, Stage]) -> None:
    stage = stages["reject to java"]
    fates = publish_by_java(stage, rounds=5, in_round=30, pause_ms=500)
    assert [number for number, _ in fates] == list(range(150))
    stored = [number for number, fate in fates if fate == "stored"]
    refused = [fate for _, fate in fates if fate != "stored"]
    assert len(stored) >= 5
    assert refused
    assert all(fate.startswith("NotAllowedException ") and f"limit of topic {JAVA}: 20" in fate for fate in refused)
    assert [int(message.data()) for message in read_all(stage.at_broker, JAVA)] == stored
    assert counted(stage.sluice, "sluice_messages_rejected_total") == len(refused)
    assert counted(stage.sluice, "sluice_connections_accepted_total") == 2, "one for lookups, one for all the rest"


def publish_by_java(stage: Stage, rounds: int, in_round: int, pause_ms: int) -> list[tuple[int, str]]:
    """What became of each message, by its number; compiled by the run itself."""
    command = [
        require_java(),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{jars()}/*",
        str(SOURCE),
        stage.sluice.service_url,
        JAVA,
    ]
    command += [str(rounds), str(in_round), str(pause_ms)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    fates = re.findall(r"^message (\d+) (.*)$", done.stdout, re.MULTILINE)
    return [(int(number), fate) for number, fate in fates]
