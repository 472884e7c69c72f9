"""Limits in mode `reject`, as real clients meet them: each send ends soon, stored or refused, none is in the way."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Line, Watcher
from tests.real.conftest import IS_DIRECT
from tests.real.flows import Played
from tests.real.metrics import counted
from tests.real.publishers import STORED, Fate, Rounds, by_go, by_java, by_python, go_program
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.stages import Stage, open_stages
from tests.real.steadiness import assert_never_above
from tests.real.traffic import read_all

pytestmark = pytest.mark.real

RATE, BURST = 300, 30
BYTES = 60_000
SOON_MS = 60_000
"""Half the send timeout: who is stuck hears nothing before."""
SINGLES, BATCHES = Rounds("single"), Rounds("batches")
CHUNKED = Rounds("chunks", rounds=1, in_round=4, size=50_000)

Publish = Callable[[str, str, Rounds], list[Fate]]


@dataclass(frozen=True)
class Scene:
    """One program behind one Sluice: what it says of each message, and what came at the broker.

    Attributes:
        watcher: None where the topic is only read at the end.
    """

    stage: Stage
    topic: str
    rounds: Rounds
    fates: list[Fate]
    watcher: Watcher | None = None

    @property
    def refused(self) -> list[Fate]:
        return [fate for fate in self.fates if fate.said != STORED]

    def assert_each_is_known_soon(self) -> None:
        assert sorted(fate.number for fate in self.fates) == list(range(self.rounds.rounds * self.rounds.in_round))
        assert max(fate.ms for fate in self.fates) < SOON_MS

    def assert_stored_once_and_in_order(self) -> None:
        """What its client says is stored, and nothing else."""
        receipts = sorted(fate.number for fate in self.fates if fate.said == STORED)
        stored = [int(message.data().rstrip(b"\0")) for message in read_all(self.stage.at_broker, self.topic)]
        assert stored == receipts
        assert stored

    def assert_within_the_limit(self, begun: float) -> None:
        assert self.watcher is not None
        entries = Counter(
            (message.message_id().ledger_id(), message.message_id().entry_id()) for message in self.watcher.messages
        )
        line = Line(RATE, BURST, entry=max(entries.values()))
        assert_never_above(self.watcher.arrivals, line, begun)


def of_topics(**limits: dict[str, Any]) -> dict[str, Any]:
    return {
        "limits": {
            "topics": {topic_name("reject", name): {"publish": {"mode": "reject", **of}} for name, of in limits.items()}
        }
    }


MESSAGES: dict[str, Any] = {"messages": RATE}
ONE = of_topics(java_batches=MESSAGES, java_singles=MESSAGES, python_batches=MESSAGES, python_singles=MESSAGES)
WAITING = of_topics(go_batches=MESSAGES, go_singles=MESSAGES, chunks={"bytes": BYTES})

REFUSING = {
    "java_batches": (by_java, BATCHES),
    "java_singles": (by_java, SINGLES),
    "python_batches": (by_python, BATCHES),
    "python_singles": (by_python, SINGLES),
}
ERRORS = {"java": "NotAllowedException", "python": "ChecksumError"}


@pytest.fixture(scope="module")
def stages(
    real_broker: StandaloneBroker, rest: PulsarRest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Stage]]:
    if IS_DIRECT:
        pytest.skip("the broker itself has not the modes of Sluice (SLUICE_TEST_DIRECT)")
    rest.ensure_namespace("reject")
    configs = {"one": ONE, "waiting": WAITING}
    with open_stages(real_broker, configs, tmp_path_factory.mktemp("sluices")) as stages:
        yield stages


@pytest.fixture(scope="module")
def played(stages: dict[str, Stage]) -> Played[Scene]:
    scenes = {name: scene(stages["one"], name, publish, rounds) for name, (publish, rounds) in REFUSING.items()}
    return Played(scenes)


def scene(stage: Stage, name: str, publish: Publish, rounds: Rounds) -> Callable[[], Scene]:
    topic = topic_name("reject", name)
    watcher = Watcher(stage.at_broker.subscribe(topic, "watch"))

    def play() -> Scene:
        with watcher:
            fates = publish(stage.sluice.service_url, topic, rounds)
            watcher.wait_for(sum(fate.said == STORED for fate in fates))
        return Scene(stage, topic, rounds, fates, watcher)

    return play


@pytest.mark.jdk
@pytest.mark.parametrize("name", REFUSING)
def test_each_send_over_the_limit_is_soon_stored_or_refused(played: Played[Scene], name: str) -> None:
    scene = played[name]
    scene.assert_each_is_known_soon()
    scene.assert_stored_once_and_in_order()
    scene.assert_within_the_limit(played.begun[name])
    error = ERRORS[name.partition("_")[0]]
    assert scene.refused
    assert {fate.said.partition(" ")[0] for fate in scene.refused} == {error}


@pytest.mark.jdk
def test_a_java_client_says_which_limit_refused(played: Played[Scene]) -> None:
    scene = played["java_batches"]
    reason = f"NotAllowedException over the publish limit of topic {scene.topic}: {RATE} messages per 1 s"
    assert {fate.said for fate in scene.refused} == {reason}


@pytest.mark.jdk
def test_refused_messages_are_counted_and_cost_no_connection(played: Played[Scene], stages: dict[str, Stage]) -> None:
    sluice = stages["one"].sluice
    assert counted(sluice, "sluice_connections_accepted_total") == 2 * len(REFUSING), (
        "one for lookups, one for the rest"
    )
    refused = sum(len(played[name].refused) for name in REFUSING)
    assert counted(sluice, "sluice_messages_rejected_total") == refused


@pytest.mark.jdk
def test_messages_in_chunks_are_held_and_stored(stages: dict[str, Stage]) -> None:
    stage, own = stages["waiting"], topic_name("reject", "chunks")
    scene = Scene(stage, own, CHUNKED, by_java(stage.sluice.service_url, own, CHUNKED))
    scene.assert_each_is_known_soon()
    assert scene.refused == []
    scene.assert_stored_once_and_in_order()
    # All of it but the burst and the last entry took its time.
    assert max(fate.ms for fate in scene.fates) > 1000 * (4 * 50_000 - BYTES / 10 - 21_000) / BYTES


@pytest.mark.skipif(shutil.which("go") is None, reason="no Go client here: install Go")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("go_batches", "batches"),
        ("go_singles", "single"),
    ],
)
def test_what_a_go_client_sends_is_held_and_stored(stages: dict[str, Stage], name: str, kind: str) -> None:
    """It could be told nothing that would end one send."""
    rounds, publish = Rounds(kind, rounds=2, in_round=400), partial(by_go, go_program())
    played = Played({name: scene(stages["waiting"], name, publish, rounds)})
    played[name].assert_each_is_known_soon()
    assert played[name].refused == []
    played[name].assert_stored_once_and_in_order()
    played[name].assert_within_the_limit(played.begun[name])
