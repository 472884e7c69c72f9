"""`sluice import --from-admin` against a stand-in of the broker's admin REST."""

import asyncio
from pathlib import Path

import yaml
from typer.testing import CliRunner, Result

from proxy.importing.from_admin import BrokerState, found_in
from proxy.importing.keys import DEFAULTS
from sluice.cli import app
from tests.proxy.importing.broker_admin import broker_admin


async def run(*arguments: object) -> Result:
    """In a thread, as the stand-in needs this loop."""
    return await asyncio.to_thread(CliRunner().invoke, app, ["import", *map(str, arguments)])


def is_there(path: Path) -> bool:
    return path.exists()


def test_of_what_a_broker_runs_with_only_what_is_not_pulsars_default_is_taken() -> None:
    running = {key: value or "3014" for key, value in DEFAULTS.items()} | {"brokerMaxConnections": "77"}
    findings = found_in(BrokerState(running, {}))
    assert [(entry.path, entry.value) for entry in findings.taken] == [(("max_connections",), 77)]
    assert [limit.what for limit in findings.left] == [
        "configuration of the broker: maxMessagePublishBufferSizeInMB=3014"
    ]
    assert findings.switch_off == []


def test_what_was_set_at_run_time_is_taken_whatever_it_is() -> None:
    dynamic = {"maxConcurrentLookupRequest": "50000", "maxMessagePublishBufferSizeInMB": "64"}
    findings = found_in(BrokerState({"maxConcurrentLookupRequest": "50000"}, dynamic))
    assert [(entry.path, entry.value) for entry in findings.taken] == [
        (("max_lookups_in_flight",), 50000),
        (("publish", "hold_total"), "64MiB"),
    ]


async def test_everything_a_broker_limits_is_one_file_that_sluice_accepts(tmp_path: Path) -> None:
    output, token = tmp_path / "sluice.yaml", tmp_path / "token"
    token.write_text("secret\n")
    async with broker_admin(resourcegroups=["on"]) as broker:
        broker.answers["brokers/configuration/runtime"] = {
            "clusterName": "here",
            "maxPublishRatePerTopicInMessages": "500",
            "dispatchThrottlingRatePerReplicatorInMsg": "9",
        }
        broker.answers["resourcegroups/on"] = {"publishRateInBytes": 1000}
        broker.add_namespace(
            "shop/orders",
            {
                "publishMaxMessageRate": {"here": {"publishThrottlingRateInMsg": 5}},
                "clusterSubscribeRate": {"here": {"subscribeThrottlingRatePerConsumer": 4}},
                "resource_group_name": "on",
            },
            "persistent://shop/orders/a",
        )
        broker.answers["persistent/shop/orders/a/internal-info"] = {"cursors": {"null": {}}}
        broker.set_rate("persistent/shop/orders/a/null/dispatchRate", {"dispatchThrottlingRateInMsg": 8})
        result = await run("--from-admin", broker.url, "--token-file", token, "--output", output)
        assert broker.tokens == {"Bearer secret"}
    assert (result.exit_code, result.stdout) == (0, "")
    assert CliRunner().invoke(app, ["check", "--config", str(output)]).exit_code == 0
    assert yaml.safe_load(output.read_text())["limits"] == {
        "each_topic": {"publish": {"messages": 500}},
        "namespaces": {"shop/orders": {"publish": {"messages": 5}, "subscribe": "4/30s"}},
        "resource_groups": {"on": {"publish": {"bytes": 1000}, "namespaces": ["shop/orders"]}},
        "topics": {"persistent://shop/orders/a": {"subscriptions": {"null": {"dispatch": {"messages": 8}}}}},
    }
    assert "configuration of the broker: dispatchThrottlingRatePerReplicatorInMsg=9" in result.stderr
    assert [line.strip() for line in result.stderr.splitlines() if "pulsar-admin" in line] == [
        "pulsar-admin brokers update-dynamic-config --config maxPublishRatePerTopicInMessages --value 0",
        "pulsar-admin namespaces remove-publish-rate shop/orders",
        "pulsar-admin namespaces remove-subscribe-rate shop/orders",
        "pulsar-admin namespaces remove-resource-group shop/orders",
        "pulsar-admin topicPolicies remove-subscription-dispatch-rate --subscription null persistent://shop/orders/a",
    ]


async def test_a_broker_that_refuses_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    output = tmp_path / "sluice.yaml"
    async with broker_admin(tenants=(401, {"reason": "no"})) as broker:
        result = await run("--from-admin", broker.url, "--output", output)
        assert (result.exit_code, result.stdout) == (1, "")
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"sluice: {broker.url}/admin/v2/tenants: 401: the broker wants a token")
    assert not is_there(output)


async def test_values_of_a_broker_that_cannot_be_meant_are_told_as_those_of_a_file() -> None:
    async with broker_admin() as broker:
        broker.answers["brokers/configuration/values"] = {"maxPublishRatePerTopicInBytes": "-7"}
        result = await run("--from-admin", broker.url)
    assert result.exit_code == 1
    assert result.stderr.startswith("sluice: dynamic configuration: maxPublishRatePerTopicInBytes: '-7': ")
