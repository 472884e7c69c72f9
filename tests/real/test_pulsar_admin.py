"""The real pulsar-admin at Sluice's admin address: it says what it says at a broker, and running clients notice."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.compliance.judging.pure import Key
from tests.real.admin_calls import AdminCalls, Answer
from tests.real.admin_scenes import Change, Scene, consuming_scene, publishing_scene
from tests.real.admin_scripts import (
    DIFFERENCES,
    IN_PARTS,
    ODD_NAMES,
    RATES,
    SUBSCRIPTION,
    TOPIC,
    Difference,
    of_dynamic_configuration,
    of_mistakes,
    of_namespace,
    of_odd_names,
    of_resource_groups,
    of_subscription,
    of_topic,
    of_topic_globally,
    precedence,
)
from tests.real.conftest import IS_DIRECT
from tests.real.flows import Played
from tests.real.metrics import counted
from tests.real.pulsar_admin import PulsarAdmin
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name
from tests.real.sluice_process import SluiceProcess, start_sluice
from tests.real.stages import Stage
from tests.real.steadiness import assert_used
from tests.real.traffic import quiet_client
from tests.waiting import wait_for

pytestmark = pytest.mark.real
CONFIG: dict[str, object] = {}
"""A Sluice of its own, as its limits change."""
TOKEN, PLUGIN = "a-token-that-may-write", "org.apache.pulsar.client.impl.auth.AuthenticationToken"
LIVE, LIVE_DISPATCH = topic_name("pulsar-admin", "live"), topic_name("pulsar-admin", "live-dispatch")
LIVE_GROUP, GROUPED = topic_name("pulsar-admin-group", "live"), f"{TENANT}/pulsar-admin-group"
PUBLISH = (
    Change(f"topicPolicies set-publish-rate {LIVE} -m 50", 50),
    Change(f"topicPolicies set-publish-rate {LIVE} -m 150", 150),
    Change(f"topicPolicies set-publish-rate {LIVE} -m 50", 50),
    Change(f"topicPolicies remove-publish-rate {LIVE}", None),
)
DISPATCH = (
    Change(f"topics set-dispatch-rate {LIVE_DISPATCH} -md 50", 50),
    Change(f"topics set-dispatch-rate {LIVE_DISPATCH} -md 150 -dt 1", 150),
    Change(f"topics remove-dispatch-rate {LIVE_DISPATCH}", None),
)
GROUP = (
    Change(f"namespaces set-resource-group {GROUPED} -rgn {TENANT}-live", 50),
    Change(f"resourcegroups update {TENANT}-live -mp 150", 150),
    Change(f"namespaces remove-resource-group {GROUPED}", None),
)
PATIENCE_S = 60
"""A broker's topic policies are written to a topic and read from there: what was set may come a moment later."""


class Both:
    """The same call at the broker and at Sluice."""

    def __init__(self, calls: AdminCalls, broker: StandaloneBroker, sluice: SluiceProcess) -> None:
        self.at_broker: Callable[[str], Answer] = lambda command: calls.call(broker.admin_url, command)
        self.at_sluice: Callable[[str], Answer] = lambda command: calls.call(sluice.admin_url, command)

    def assert_alike(self, script: Iterator[str], alike: Callable[[Answer, Answer], bool] = Answer.__eq__) -> None:
        """No call of the script is answered otherwise by one than by the other."""
        differences = []
        for command in script:
            sluice, broker = self.at_sluice(command), self.at_broker(command)
            deadline = time.monotonic() + PATIENCE_S
            while not alike(sluice, broker) and " get-" in command and time.monotonic() < deadline:
                time.sleep(0.1)
                broker = self.at_broker(command)
            if not alike(sluice, broker):
                differences.append(f"{command}\n  broker: {broker}\n  Sluice: {sluice}")
        assert not differences, "\n".join(differences)


@pytest.fixture(scope="module")
def both(calls: AdminCalls, real_broker: StandaloneBroker, sluice_proxy: SluiceProcess, rest: PulsarRest) -> Both:
    if IS_DIRECT:
        pytest.skip("a broker and itself do not differ (SLUICE_TEST_DIRECT)")
    rest.ensure_namespace("pulsar-admin")
    rest.create_topic(TOPIC)
    rest.create_partitioned_topic(IN_PARTS, 2)
    for name in ODD_NAMES:
        rest.create_topic(topic_name("pulsar-admin", name))
    rest.call("PUT", f"/admin/v2/{TOPIC.replace('://', '/')}/subscription/{SUBSCRIPTION}")
    return Both(calls, real_broker, sluice_proxy)


@pytest.mark.jdk
@pytest.mark.parametrize("kind", RATES)
def test_rates_of_a_namespace_are_answered_as_by_a_broker(both: Both, kind: str) -> None:
    both.assert_alike(of_namespace(kind))


@pytest.mark.jdk
@pytest.mark.parametrize(("group", "kind"), [("topics", "dispatch-rate"), *(("topicPolicies", kind) for kind in RATES)])
def test_rates_of_a_topic_are_answered_as_by_a_broker(both: Both, group: str, kind: str) -> None:
    """The group `topics` has old names for the same requests."""
    both.assert_alike(of_topic(group, kind))


@pytest.mark.jdk
def test_rates_of_odd_names_are_answered_as_by_a_broker(both: Both) -> None:
    both.assert_alike(of_odd_names())


@pytest.mark.jdk
@pytest.mark.parametrize("kind", RATES)
def test_global_rates_of_a_topic_are_answered_as_by_a_broker(both: Both, kind: str) -> None:
    both.assert_alike(of_topic_globally(kind))


@pytest.mark.jdk
@pytest.mark.parametrize("subscription", [SUBSCRIPTION, "not-there", "'a b/c'"])
def test_the_rate_of_a_subscription_is_answered_as_by_a_broker(both: Both, subscription: str) -> None:
    both.assert_alike(of_subscription(subscription))


@pytest.mark.jdk
@pytest.mark.parametrize(
    ("kind", "key", "flags"),
    [
        ("dispatch-rate", "dispatchThrottlingRatePerTopicInMsg", "-md"),
        ("subscription-dispatch-rate", "dispatchThrottlingRatePerSubscriptionInByte", "-bd"),
        ("subscribe-rate", "subscribeThrottlingRatePerConsumer", "-sr"),
    ],
)
def test_what_applies_is_what_applies_at_a_broker(both: Both, kind: str, key: str, flags: str) -> None:
    both.assert_alike(precedence(kind, key, flags))


@pytest.mark.jdk
def test_resource_groups_are_answered_as_by_a_broker(both: Both) -> None:
    """Groups of other tests may be there at the broker."""

    def alike(sluice: Answer, broker: Answer) -> bool:
        own = [line for line in broker.lines if line.startswith(TENANT)]
        return sluice == broker or (sluice.code, sluice.lines, sluice.err) == (broker.code, own, broker.err)

    both.assert_alike(of_resource_groups(), alike)


@pytest.mark.jdk
def test_dynamic_configuration_is_answered_as_by_a_broker(both: Both) -> None:
    def alike(sluice: Answer, broker: Answer) -> bool:
        return (sluice.code, sluice.lines, sluice.err) == (broker.code, broker.lines, broker.err)

    both.assert_alike(of_dynamic_configuration(), alike)


@pytest.mark.jdk
def test_a_broker_lists_the_dynamic_keys_that_mean_something_here_among_others(both: Both) -> None:
    listed = "brokers list-dynamic-config"
    assert set(both.at_sluice(listed).lines) < set(both.at_broker(listed).lines)


@pytest.mark.jdk
def test_mistakes_are_told_as_by_a_broker(both: Both) -> None:
    both.assert_alike(of_mistakes())


@pytest.mark.jdk
@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.why)
def test_where_sluice_differs_it_has_a_reason(both: Both, difference: Difference) -> None:
    for command in difference.before:
        both.at_sluice(command)
        both.at_broker(command)
    broker, deadline = both.at_broker(difference.command), time.monotonic() + PATIENCE_S
    while difference.broker not in str(broker) and time.monotonic() < deadline:
        time.sleep(0.1)
        broker = both.at_broker(difference.command)
    sluice = both.at_sluice(difference.command)
    for command in difference.after:
        both.at_sluice(command)
        both.at_broker(command)
    assert difference.broker in str(broker)
    assert difference.sluice in str(sluice)
    assert sluice != broker


@pytest.fixture(scope="module")
def played(
    calls: AdminCalls, real_broker: StandaloneBroker, sluice_proxy: SluiceProcess, rest: PulsarRest
) -> Iterator[Played[Scene]]:
    """What clients that go on see of changes, all at once."""
    if IS_DIRECT:
        pytest.skip("a broker's own limits are coarser (SLUICE_TEST_DIRECT)")
    for namespace in ("pulsar-admin", "pulsar-admin-group"):
        rest.ensure_namespace(namespace)
    calls.call(sluice_proxy.admin_url, f"resourcegroups create {TENANT}-live -mp 50").assert_well()
    with ExitStack() as clients:
        at_broker = quiet_client(real_broker.service_url)
        clients.callback(at_broker.close)
        stage = Stage(sluice_proxy, at_broker, rest, clients)

        def run(command: str) -> None:
            calls.call(sluice_proxy.admin_url, command).assert_well()

        scenes = {
            "publish": publishing_scene(stage, LIVE, run, PUBLISH),
            "dispatch": consuming_scene(stage, LIVE_DISPATCH, run, DISPATCH),
            "group": publishing_scene(stage, LIVE_GROUP, run, GROUP),
        }
        connections = counted(sluice_proxy, "sluice_connections_accepted_total")
        yield Played({name: scene.play for name, scene in scenes.items()})
        assert counted(sluice_proxy, "sluice_connections_accepted_total") == connections, (
            "they go on on those they have"
        )


@pytest.mark.jdk
@pytest.mark.parametrize(
    ("scene", "limit"),
    [
        ("publish", ("publish", "topic", LIVE)),
        ("dispatch", ("dispatch", "topic", LIVE_DISPATCH)),
        ("group", ("publish", "resource_group", f"{TENANT}-live")),
    ],
)
def test_running_clients_go_as_fast_as_pulsar_admin_says(
    played: Played[Scene], sluice_proxy: SluiceProcess, scene: str, limit: Key
) -> None:
    played[scene].assert_in_force()
    assert_used(sluice_proxy, *limit)


@pytest.mark.jdk
def test_pulsar_admin_is_let_in_only_with_a_token(
    calls: AdminCalls, real_broker: StandaloneBroker, tmp_path: Path
) -> None:
    """The program itself gets in, in a JVM of its own."""
    if IS_DIRECT:
        pytest.skip("the broker itself asks for no token (SLUICE_TEST_DIRECT)")
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(f"{{ann: {{access: write, token: {TOKEN}}}}}")
    tokens.chmod(0o600)
    sluice = start_sluice(tmp_path / "sluice", real_broker.service_url, {"admin_access": {"tokens": str(tokens)}})
    admin = PulsarAdmin(sluice.admin_url, sluice.service_url)
    known = ("--auth-plugin", PLUGIN, "--auth-params", f"token:{TOKEN}")
    try:
        refused = calls.call(sluice.admin_url, "namespaces set-publish-rate public/default -m 70000")
        assert refused.code == 1
        assert "a token is needed here: Authorization: Bearer TOKEN" in refused.err
        assert admin.run(*known, "namespaces", "set-publish-rate", "public/default", "-m", "70000") == ""
        assert sluice.process
        log = sluice.process.log_path
        wait_for(lambda: '"by": "ann"' in log.read_text())
    finally:
        sluice.stop()
