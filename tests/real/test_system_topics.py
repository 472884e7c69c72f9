"""Exempt here is what the broker's own classes exempt; and what looks like it is limited."""

import base64
import itertools
import random
import subprocess
import time

import pulsar
import pytest

from protocol.topic_name import parse_topic
from tests.protocol.test_topic_name import LIMITED_IN_PART, ORDINARY, SYSTEM
from tests.real.conftest import IS_DIRECT
from tests.real.demand import publishing
from tests.real.java_programs import java_program
from tests.real.pulsar_rest import PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.steadiness import assert_used
from tests.real.traffic import PATIENCE_MS, open_sender, quiet_client

pytestmark = pytest.mark.real

CONFIG = {"limits": {"proxy": {"publish": {"messages": 10}}, "exempt": {"publish": {"messages": 50}}}}
_NAMESPACES = (
    "public/default", "pulsar/system", "pulsar/host:8080", "pulsar/host", "pulsar/:1", "pulsar/a:b:1", "Pulsar/system",
    "sla-monitor/host:8080", "acme/host:8080", "a b/c", "pulsar/c/host:8080",
)  # fmt: skip
_LOCALS = (
    "__change_events", "__Change_events", "x__change_events", "__transaction_buffer_snapshot", "__transaction_log_1",
    "__transaction_buffer_snapshot_indexes", "__transaction_buffer_snapshot_segments", "__transaction_pending_ack",
    "orders-sub__transaction_pending_ack", "transaction_coordinator_assign", "healthcheck", "a\0b",
)  # fmt: skip
_SUFFIXES = (
    "0", "1", "01", "00", "-1", "+1", "x", "", " 1", "2147483647", "2147483648", "٣", "1٣", "٠٣", "²", "\uff19",
    "\U0001d7cf",
)  # fmt: skip


def _generated() -> list[str]:
    """Names of every kind of part, with up to three partition suffixes."""
    suffixes = ["", *(f"-partition-{number}" for number in _SUFFIXES)]
    suffixes += [first + second for first, second in itertools.product(suffixes[1:], repeat=2)]
    suffixes += ["".join(random.Random(7).choices(suffixes[1:18], k=3)) for _ in range(50)]
    parts = itertools.product(("persistent", "non-persistent"), _NAMESPACES, _LOCALS, suffixes)
    return [f"{domain}://{namespace}/{local}{suffix}" for domain, namespace, local, suffix in parts]


def _as_the_broker_says(names: list[str]) -> list[str]:
    asked = "".join(f"{base64.b64encode(name.encode()).decode()}\n" for name in names)
    command = java_program("SystemTopics")
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()


def _as_sluice_says(name: str) -> str:
    try:
        topic = parse_topic(name)
    except ValueError:
        return "refused"
    return f"{str(topic.is_system).lower()} {base64.b64encode(topic.partitioned.encode()).decode()}"


def test_every_name_is_to_sluice_what_it_is_to_the_broker() -> None:
    """Names of the old form and topics that are not persistent are never exempt here, whatever 4.0.8 says."""
    names = [*SYSTEM, *ORDINARY, *LIMITED_IN_PART, *_generated()]
    differing = []
    answers = _as_the_broker_says(names)
    for name, broker in zip(names, answers, strict=True):
        is_narrower = name.startswith("non-persistent://") or name.count("/") > "persistent://t/n/x".count("/")
        expected = broker.replace("true ", "false ", 1) if is_narrower else broker
        if _as_sluice_says(name) != expected:
            differing.append((name, broker, _as_sluice_says(name)))
    assert differing == []
    words = [answer.partition(" ")[0] for answer in answers]
    assert min(words.count(word) for word in ("true", "false", "refused")) > 100


def test_only_exempt_topics_have_the_limit_of_the_exempt(sluice_proxy: SluiceProcess, rest: PulsarRest) -> None:
    if IS_DIRECT:
        pytest.skip("the broker itself has not the limits of Sluice (SLUICE_TEST_DIRECT)")
    rest.ensure_namespace("looks")
    client = quiet_client(sluice_proxy.service_url)
    try:
        ordinary = open_sender(client, topic_name("looks", "__change_events-partition-x"), "ordinary")
        exempt_topic = "persistent://pulsar/system/sluice-exempt"
        exempt = open_sender(client, exempt_topic, "exempt")
        began = time.monotonic()
        with publishing(ordinary, exempt):
            time.sleep(3)
            counts, passed = (len(ordinary.sent), len(exempt.sent)), time.monotonic() - began
        assert_used(sluice_proxy, "publish", "proxy")
        assert_used(sluice_proxy, "publish", "exempt", exempt_topic)
    finally:
        client.close()
    for count, rate in zip(counts, (10, 50), strict=True):
        assert 0 < count <= rate / 10 + rate * passed + 1


def test_a_topic_whose_name_cannot_be_printed_works(sluice_proxy: SluiceProcess, rest: PulsarRest) -> None:
    rest.ensure_namespace("looks")
    client = quiet_client(sluice_proxy.service_url)
    try:
        topic = topic_name("looks", "a\0b\x1b[2J\n")
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        open_sender(client, topic, "p").send_all([b"seen"])
        assert consumer.receive(PATIENCE_MS).data() == b"seen"
    finally:
        client.close()
