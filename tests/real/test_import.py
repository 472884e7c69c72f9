"""A real broker's policies, set by its own REST, are taken over as they are, and end by the commands that are told."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from loadgen.real.standalone import StandaloneBroker
from sluice.cli import app
from tests.real.admin_calls import AdminCalls
from tests.real.pulsar_rest import TENANT, PulsarRest, topic_name

pytestmark = pytest.mark.real
RUNNER = CliRunner()
PLAIN, PARTITIONED = topic_name("import", "plain"), topic_name("import", "in parts")
DIFFERENCE = "Pulsar does not enforce its dispatch rates, Sluice does"
KEYS = {"maxPublishRatePerTopicInMessages": "70000", "dispatchThrottlingRatePerSubscriptionInByte": "80000000"}
"""So high that no test beside this one, on the same broker, comes near."""


def rates(**numbers: int) -> dict[str, Any]:
    return {f"dispatchThrottlingRateIn{unit}": number for unit, number in numbers.items()}


def path(topic: str) -> str:
    return "/admin/v2/" + topic.replace("://", "/", 1).replace(" ", "%20")


@pytest.fixture(scope="module")
def limited(rest: PulsarRest) -> Any:
    """A namespace, a topic, a partitioned one and a subscription with rates of their own; the broker with two keys."""
    rest.ensure_namespace("import")
    namespace = f"/admin/v2/namespaces/{TENANT}/import"
    rest.call("PUT", "/admin/v2/resourcegroups/sluice%20gold", {"publishRateInMsgs": 90000, "dispatchRateInBytes": 9})
    rest.call("POST", f"{namespace}/resourcegroup/sluice%20gold")
    rest.call("POST", f"{namespace}/publishRate", {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1})
    rest.call("POST", f"{namespace}/dispatchRate", rates(Msg=20, Byte=-1) | {"ratePeriodInSecond": 2})
    rest.call("POST", f"{namespace}/subscribeRate", {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30})
    rest.call("PUT", path(PLAIN))
    rest.call("PUT", f"{path(PARTITIONED)}/partitions", 2)
    rest.call("PUT", f"{path(PLAIN)}/subscription/my%20sub%2F1")
    rest.call("POST", f"{path(PLAIN)}/my%20sub%2F1/dispatchRate", rates(Msg=14))
    rest.call("POST", f"{path(PARTITIONED)}/publishRate?isGlobal=true", {"publishThrottlingRateInByte": 1000})
    subscribe = {"subscribeThrottlingRatePerConsumer": 7, "ratePeriodInSecond": 10}
    rest.call("POST", f"{path(PARTITIONED)}/subscribeRate?isGlobal=true", subscribe)
    rest.call("POST", f"{path(PARTITIONED)}/dispatchRate", rates(Msg=12) | {"relativeToPublishRate": True})
    for key, value in KEYS.items():
        rest.call("POST", f"/admin/v2/brokers/configuration/{key}/{value}")
    yield
    for key in KEYS:
        rest.call("DELETE", f"/admin/v2/brokers/configuration/{key}")
    rest.call("DELETE", f"{namespace}/resourcegroup")
    rest.call("DELETE", "/admin/v2/resourcegroups/sluice%20gold")


def run(*arguments: str) -> Result:
    result = RUNNER.invoke(app, ["import", *arguments])
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("import") / "sluice.yaml"


@pytest.fixture(scope="module")
def result(real_broker: StandaloneBroker, limited: None, output: Path) -> Result:
    return run("--from-admin", real_broker.admin_url, "--output", str(output))


def test_a_brokers_limits_are_taken_over(result: Result, output: Path) -> None:
    assert RUNNER.invoke(app, ["check", "--config", str(output)]).exit_code == 0
    limits = yaml.safe_load(output.read_text())["limits"]
    assert limits["each_topic"]["publish"]["messages"] == 70000
    assert limits["each_subscription"]["dispatch"]["bytes"] == 80000000
    assert limits["namespaces"][f"{TENANT}/import"] == {
        "publish": {"messages": 10},
        "dispatch": {"messages": "20/2s"},
        "subscribe": "5/30s",
    }
    assert limits["resource_groups"]["sluice gold"] == {
        "publish": {"messages": 90000},
        "dispatch": {"bytes": 9},
        "namespaces": [f"{TENANT}/import"],
    }
    assert limits["topics"][PLAIN] == {"subscriptions": {"my sub/1": {"dispatch": {"messages": 14}}}}
    assert limits["topics"][PARTITIONED] == {
        "publish": {"bytes": 1000},
        "dispatch": {"messages": 12, "relativeToPublishRate": True},
        "subscribe": "7/10s",
    }
    assert f"resource group sluice gold: {DIFFERENCE}" in result.stderr


@pytest.mark.jdk
def test_the_commands_that_are_told_end_the_limits_at_the_broker(
    real_broker: StandaloneBroker, result: Result, calls: AdminCalls
) -> None:
    lines = commands(result)
    assert len(lines) == 10
    for command in lines:
        calls.call(real_broker.admin_url, command.removeprefix("pulsar-admin ")).assert_well()
    assert commands(run("--from-admin", real_broker.admin_url)) == []


def commands(result: Result) -> list[str]:
    """Those that are about this test's namespace and keys: other tests use the same broker."""
    own = (f"{TENANT}/import", *KEYS)
    lines = [line.strip() for line in result.stderr.splitlines()]
    return [line for line in lines if line.startswith("pulsar-admin ") and any(name in line for name in own)]
