"""The real pulsar-admin at Sluice's address alone: what Sluice does not serve is answered as by the broker itself."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.admin_calls import AdminCalls, Answer
from tests.real.conftest import IS_DIRECT
from tests.real.metrics import counted
from tests.real.pulsar_rest import PulsarRest
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.jdk]
Call = Callable[[str], Answer]
THROUGH, DIRECTLY = "passed-through", "asked-directly"
"""Tenants of the same length, which pulsar-admin's tables show."""
OTHER_KEY = "brokerDeleteInactiveTopicsFrequencySeconds"

MAKING = (
    "tenants create {n} -c standalone",
    "tenants create {n} -c standalone",
    "namespaces create {n}/ns -b 4",
    "namespaces create {n}/ns",
    "namespaces set-retention {n}/ns -t 1h -s 10M",
    "namespaces set-message-ttl {n}/ns -ttl 3600",
    "namespaces set-replicator-dispatch-rate {n}/ns -md 5",
    "namespaces grant-permission {n}/ns --role 'a b/c' --actions consume",
    "topics create persistent://{n}/ns/t",
    "topics create 'persistent://{n}/ns/of two words'",
    "topics create-partitioned-topic persistent://{n}/ns/p -p 2",
    "topics create-subscription persistent://{n}/ns/t -s s1",
    "topics create-subscription persistent://{n}/ns/t -s 'a b/c;d'",
    "topics set-retention persistent://{n}/ns/t -t 2h -s 1M",
    "schemas upload {n}/ns/t --filename {schema}",
    "topics skip persistent://{n}/ns/t -s s1 -n 5",
    "topics skip persistent://{n}/ns/nowhere -s s1 -n 5",
    "topicPolicies set-max-producers persistent://{n}/ns/t -p 3",
)
READING = (
    "tenants list",
    "tenants get {n}",
    "tenants get nobody-s",
    "namespaces list {n}",
    "namespaces policies {n}/ns",
    "namespaces get-retention {n}/ns",
    "namespaces get-message-ttl {n}/ns",
    "namespaces get-replicator-dispatch-rate {n}/ns",
    "namespaces permissions {n}/ns",
    "namespaces bundles {n}/ns",
    "namespaces get-retention {n}/nowhere",
    "topics list {n}/ns",
    "topics list-partitioned-topics {n}/ns",
    "topics get-partitioned-topic-metadata persistent://{n}/ns/p",
    "topics lookup persistent://{n}/ns/t",
    "topics bundle-range persistent://{n}/ns/t",
    "topics subscriptions persistent://{n}/ns/t",
    "topics stats persistent://{n}/ns/t",
    "topics stats-internal persistent://{n}/ns/t",
    "topics stats 'persistent://{n}/ns/of two words'",
    "topics partitioned-stats persistent://{n}/ns/p",
    "schemas get {n}/ns/t",
    "brokers list standalone",
    "brokers leader-broker",
    "brokers healthcheck",
    "brokers version",
    "brokers get-runtime-config",
    "brokers get-internal-config",
    "brokers list-dynamic-config",
    "clusters list",
    "clusters get standalone",
    "broker-stats load-report",
)
ENDING = (
    "topics unsubscribe persistent://{n}/ns/t -s 'a b/c;d'",
    "schemas delete {n}/ns/t",
    "topics delete persistent://{n}/ns/nowhere",
    "namespaces delete {n}/ns -f",
    "tenants delete {n}",
    "tenants delete {n}",
)
VARYING = ("broker-stats load-report",)
"""What is another number each time: only that it is answered, and with the same keys."""
A_SET = ("brokers list-dynamic-config",)
"""What a broker tells in the order of a hash, and Sluice in that of the alphabet."""


@pytest.fixture(scope="module")
def sluice(real_broker: StandaloneBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SluiceProcess]:
    if IS_DIRECT:
        pytest.skip("a broker passes nothing on (SLUICE_TEST_DIRECT)")
    folder = tmp_path_factory.mktemp("sluice")
    sluice = start_sluice(folder, real_broker.service_url, {"admin_forward": {"url": real_broker.admin_url}})
    try:
        yield sluice
    finally:
        sluice.stop()


@pytest.fixture(scope="module")
def at_sluice(calls: AdminCalls, sluice: SluiceProcess) -> Call:
    return lambda command: calls.call(sluice.admin_url, command)


@pytest.fixture(scope="module")
def at_broker(calls: AdminCalls, real_broker: StandaloneBroker) -> Call:
    return lambda command: calls.call(real_broker.admin_url, command)


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("schema") / "schema.json"
    file.write_text(json.dumps({"type": "STRING", "schema": "", "properties": {"a": "b"}}))
    return file


@pytest.fixture(scope="module")
def made(at_sluice: Call, at_broker: Call, schema: Path) -> Iterator[list[str]]:
    """A tenant with all that belongs to it, made through Sluice; what was answered otherwise than by a broker."""
    differences = _differences(MAKING, at_sluice, at_broker, schema)
    yield differences
    differences = _differences(ENDING, at_sluice, at_broker, schema)
    assert not differences, "\n".join(differences)


def _differences(commands: tuple[str, ...], at_sluice: Call, at_broker: Call, schema: Path) -> list[str]:
    """Each is done to one tenant through Sluice, and to another one at the broker."""
    differences = []
    for command in commands:
        through = at_sluice(command.format(n=THROUGH, schema=schema))
        directly = at_broker(command.format(n=DIRECTLY, schema=schema))
        renamed = replace(
            directly, out=directly.out.replace(DIRECTLY, THROUGH), err=directly.err.replace(DIRECTLY, THROUGH)
        )
        if through != renamed:
            differences.append(f"{command}\n  broker: {renamed}\n  Sluice: {through}")
    return differences


def test_what_is_made_through_sluice_is_answered_as_by_a_broker(made: list[str]) -> None:
    assert not made, "\n".join(made)


@pytest.mark.parametrize("command", READING)
def test_what_is_read_through_sluice_is_what_the_broker_says(
    made: list[str], at_sluice: Call, at_broker: Call, command: str
) -> None:
    through, directly = (call(command.format(n=THROUGH)) for call in (at_sluice, at_broker))
    if command in VARYING:
        through, directly = (replace(each, out=str(sorted(json.loads(each.out)))) for each in (through, directly))
    if command in A_SET:
        through, directly = (replace(each, out=str(sorted(each.out.splitlines()))) for each in (through, directly))
    assert str(through) == str(directly)


def test_limits_that_are_set_here_are_none_of_the_brokers(
    made: list[str], at_sluice: Call, at_broker: Call, sluice: SluiceProcess
) -> None:
    policies = at_broker(f"namespaces policies {THROUGH}/ns")
    for command in (
        f"namespaces set-publish-rate {THROUGH}/ns -m 70000",
        f"topicPolicies set-publish-rate persistent://{THROUGH}/ns/t -m 60000",
        "brokers update-dynamic-config -c maxPublishRatePerTopicInMessages -v 80000",
    ):
        at_sluice(command).assert_well()
    assert at_broker(f"namespaces policies {THROUGH}/ns") == policies == at_sluice(f"namespaces policies {THROUGH}/ns")
    for command in (
        f"namespaces get-publish-rate {THROUGH}/ns",
        f"topicPolicies get-publish-rate persistent://{THROUGH}/ns/t",
        "brokers get-all-dynamic-config",
    ):
        assert "0000" in at_sluice(command).out
        assert "0000" not in at_broker(command).out
    limits = sluice.get("/sluice/limits?direction=publish&setting=topic_of_namespace&name=" + f"{THROUGH}/ns")
    assert "70000" in json.dumps(limits)


def test_other_dynamic_keys_are_the_brokers(at_sluice: Call, at_broker: Call, rest: PulsarRest) -> None:
    values, path = "brokers get-all-dynamic-config", "/admin/v2/brokers/configuration/values"
    try:
        at_sluice(f"brokers update-dynamic-config -c {OTHER_KEY} -v 61").assert_well()
        assert rest.call("GET", path)[OTHER_KEY] == "61"
        assert OTHER_KEY in at_sluice(values).out
    finally:
        at_sluice(f"brokers delete-dynamic-config -c {OTHER_KEY}").assert_well()
    assert OTHER_KEY not in rest.call("GET", path)
    for command in ("update-dynamic-config -c zookeeperServers -v 5", "delete-dynamic-config -c zookeeperServers"):
        assert at_sluice(f"brokers {command}") == at_broker(f"brokers {command}")


def test_each_change_is_a_line_of_the_log_and_each_request_is_counted(made: list[str], sluice: SluiceProcess) -> None:
    assert sluice.process
    log, last = sluice.process.log_path, f"/admin/v2/namespaces/{THROUGH}/ns/permissions/a+b%2Fc"
    wait_for(lambda: last in log.read_text())
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    changes = {
        (line["method"], line["path"], line["status"]) for line in lines if line["event"] == "passed on to the broker"
    }
    assert ("PUT", f"/admin/v2/tenants/{THROUGH}", 204) in changes
    assert ("POST", last, 204) in changes, "as pulsar-admin wrote it"
    assert not any(method in {"GET", "HEAD"} for method, _, _ in changes)
    assert counted(sluice, "sluice_admin_forwarded_total", outcome="done") > len(MAKING) // 2
    assert counted(sluice, "sluice_admin_forwarded_total", outcome="unreachable") == 0
