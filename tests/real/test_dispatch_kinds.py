"""Each way to consume and each kind of message under a dispatch limit: nothing lost, doubled, out of order or stuck."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import pulsar
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Line
from tests.real.conftest import IS_DIRECT
from tests.real.consumer_kinds import (
    BATCH,
    FREE_EACH_S,
    FREE_S,
    Beside,
    batched,
    beside_a_held_one,
    drain,
    filled,
    partitions,
    pattern,
    read_to_the_end,
    zero_queue,
    zero_queues,
)
from tests.real.intake import Act
from tests.real.performance import Performance
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.stages import Stage
from tests.real.steadiness import assert_never_above, assert_used

pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_DIRECT, reason="the broker itself has not Sluice's limits")]

NAMESPACE = "dispatch-kinds"
LIMIT = 100
WHOLE = 60
SINGLY = 30
"""Where each message is asked for when the one before has come."""
SLOW = 2
"""Per minute."""
UNHELD_S = 15
"""Whatever waited for only one held message would wait twice as long."""
FREE_NAMESPACE = "dispatch-kinds-free"
FREE_TOPIC = topic_name(FREE_NAMESPACE, "beside-held")


def topic(name: str) -> str:
    return topic_name(NAMESPACE, name.replace(" ", "-"))


CONFIG = {
    "limits": {
        "namespaces": {f"{TENANT}/{NAMESPACE}": {"dispatch": {"messages": LIMIT}}},
        "topics": {
            topic("whole"): {"dispatch_total": {"messages": WHOLE}},
            topic("zero queue"): {"dispatch": {"messages": SINGLY}},
            topic("zero queues"): {"dispatch": {"messages": SINGLY}},
            topic("mixed"): {"dispatch": {"messages": f"{SLOW}/min"}},
        },
    }
}
LINES = {
    "reader": Line(LIMIT, burst=LIMIT / 10),
    "zero queue": Line(SINGLY, burst=SINGLY / 10),
    "zero queues": Line(SINGLY, burst=SINGLY / 10),
    "mixed": Line(SLOW / 60, burst=1),
    "whole": Line(WHOLE, burst=WHOLE / 10),
    **{name: Line(LIMIT, burst=LIMIT / 10, entry=BATCH) for name in ("lz4", "zstd", "encrypted")},
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    folder = tmp_path_factory.mktemp("keys")
    private, public = folder / "private.pem", folder / "public.pem"
    key = rsa.generate_private_key(65537, 2048)
    plain = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    of_public = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, of_public))
    return pulsar.CryptoKeyReader(str(public), str(private))


def unfilled(play: Callable[..., Any], name: str, stage: Stage) -> Callable[[], Any]:
    return partial(play, Act(stage, topic(name)))


LZ4 = batched(pulsar.CompressionType.LZ4)
ZSTD = batched(pulsar.CompressionType.ZSTD)


@pytest.fixture(scope="module")
def played(
    sluice_proxy: SluiceProcess, real_broker: StandaloneBroker, rest: PulsarRest, keys: pulsar.CryptoKeyReader
) -> Performance[Any]:
    rest.ensure_namespace(FREE_NAMESPACE)
    sealed = {**ZSTD, "encryption_key": "a key", "crypto_key_reader": keys}
    scenes: dict[str, Callable[[Stage], Callable[[], Any]]] = {
        "reader": partial(filled, read_to_the_end, topic("reader"), 300),
        "zero queue": partial(filled, zero_queue, topic("zero queue"), 120),
        "zero queues": partial(filled, zero_queues, topic("zero queues"), 120),
        "pattern": partial(unfilled, pattern, "pattern"),
        "partitions": partial(unfilled, partitions, "partitions"),
        "whole": partial(unfilled, partitions, "whole"),
        "mixed": partial(filled, partial(beside_a_held_one, free=FREE_TOPIC), topic("mixed"), 300),
        "lz4": partial(filled, drain, topic("lz4"), 500, **LZ4),
        "zstd": partial(filled, drain, topic("zstd"), 500, **ZSTD),
        "encrypted": partial(filled, partial(drain, crypto_key_reader=keys), topic("encrypted"), 500, **sealed),
    }
    return Performance(sluice_proxy, real_broker, NAMESPACE, scenes)


@pytest.mark.parametrize("name", LINES)
def test_the_limit_was_felt_and_kept(played: Performance[Any], name: str) -> None:
    act = played[name].held if name == "mixed" else played[name]
    assert max(played.watch.most_held[part.topic] for part in act.parts or [act]) > 0
    assert_never_above(act.arrivals, LINES[name], played.begun[name])


@pytest.mark.parametrize("name", ["reader", "zero queue", "lz4", "zstd", "encrypted"])
def test_each_message_comes_once_and_in_order(played: Performance[Any], name: str) -> None:
    played[name].assert_each_once_in_order()


@pytest.mark.parametrize("name", ["lz4", "zstd", "encrypted"])
def test_batches_are_counted_by_what_is_in_them(played: Performance[Any], name: str) -> None:
    """Whatever became of their contents; and an entry of them waits here, no more."""
    act = played[name]
    assert [stream["passed_messages"] for stream in act.streams] == [len(act.sent)]
    assert played.watch.most_held[act.topic] in (BATCH, 2 * BATCH)
    assert all(bool(taken.message.encryption_context()) == (name == "encrypted") for taken in act.log)


def test_who_has_no_receiver_queue_asks_for_each_message(played: Performance[Any]) -> None:
    act = played["zero queue"]
    assert [stream["permits_asked"] for stream in act.streams] == [len(act.sent)]
    assert [stream["permits_granted"] for stream in act.streams] == [len(act.sent)]


def test_of_two_without_receiver_queue_each_gets_what_it_asks_for(played: Performance[Any]) -> None:
    act = played["zero queues"]
    act.assert_each_once()
    assert sorted(act.by.count(name) for name in set(act.by)) == [40, 80]


@pytest.mark.parametrize("name", ["pattern", "partitions"])
def test_each_of_several_topics_has_its_limit_for_itself(
    played: Performance[Any], sluice_proxy: SluiceProcess, name: str
) -> None:
    line = Line(LIMIT, burst=LIMIT / 10)
    for part in played[name].parts:
        part.assert_each_once_in_order()
        assert played.watch.most_held[part.topic] > 0
        assert_never_above(part.arrivals, line, played.begun[name])
        assert_used(sluice_proxy, "dispatch", "topic", part.topic)


def test_partitions_share_the_limit_of_the_whole_topic(played: Performance[Any]) -> None:
    for part in played["whole"].parts:
        part.assert_each_once_in_order()


def test_held_consumer_delays_nothing_else_on_its_connection(played: Performance[Any]) -> None:
    beside: Beside = played["mixed"]
    assert len(beside.delays) == len(beside.receipts.latencies) == int(FREE_S / FREE_EACH_S)
    # One that waits has all that follow it wait, too.
    assert median(beside.delays) <= UNHELD_S
    assert median(beside.receipts.latencies) <= UNHELD_S


def test_acknowledgements_do_not_wait_for_what_is_held(played: Performance[Any]) -> None:
    """The broker knows of each message that has come, while the next ones are held."""
    act = played["mixed"].held
    assert act.indexes == list(range(len(act.log)))
    assert 0 < act.backlog == len(act.sent) - len(act.log) < len(act.sent)


def test_nothing_is_held_and_nobody_is_left_when_all_have_gone(played: Performance[Any]) -> None:
    totals, held_bytes = played.left
    assert set(totals.values()) == {0}
    assert held_bytes == 0
