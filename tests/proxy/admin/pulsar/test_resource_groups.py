"""What is asked and answered here was seen at a 4.0.8 broker, but for what the names of tests say."""

import pytest

from limiter.levels import Setting
from limiter.policies import Value
from limiter.rates import Limit, rate
from proxy.policies.layers import FilePolicies
from tests.proxy.admin.pulsar.serving import serving

_OF_NAMESPACE = "/namespaces/acme/shop/resourcegroup"
_FILE = FilePolicies({("publish", Setting.RESOURCE_GROUP, "old"): Value(Limit(rate(3)), "file")}, {}, {"a/b": "old"})


async def test_a_group_is_made_changed_and_ended() -> None:
    async with serving() as pulsar:
        assert await pulsar.ask("GET", "/resourcegroups") == (200, [])
        assert await pulsar.ask("GET", "/resourcegroups/g1") == (404, {"reason": "ResourceGroup does not exist"})

        assert await pulsar.ask("PUT", "/resourcegroups/g1", {"publishRateInMsgs": 10}) == (204, "")
        assert await pulsar.ask("PUT", "/resourcegroups/g1", {"dispatchRateInBytes": 99}) == (204, "")
        assert await pulsar.ask("GET", "/resourcegroups") == (200, ["g1"])
        assert await pulsar.ask("GET", "/resourcegroups/g1") == (
            200,
            {"publishRateInMsgs": 10, "publishRateInBytes": -1, "dispatchRateInMsgs": -1, "dispatchRateInBytes": 99},
        )
        assert pulsar.messages("publish", Setting.RESOURCE_GROUP, "g1") == 10

        assert await pulsar.ask("DELETE", "/resourcegroups/g1") == (204, "")
        assert await pulsar.ask("GET", "/resourcegroups") == (200, [])
        assert pulsar.messages("publish", Setting.RESOURCE_GROUP, "g1") is None


async def test_a_namespace_is_attached_and_detached() -> None:
    async with serving() as pulsar:
        await pulsar.ask("PUT", "/resourcegroups/g1", {})
        assert await pulsar.ask("GET", _OF_NAMESPACE) == (200, "")
        assert await pulsar.ask("POST", f"{_OF_NAMESPACE}/g2") == (412, {"reason": "ResourceGroup does not exist"})

        assert await pulsar.ask("POST", f"{_OF_NAMESPACE}/g1") == (204, "")
        assert await pulsar.ask("GET", _OF_NAMESPACE) == (200, "g1")
        assert await pulsar.ask("DELETE", "/resourcegroups/g1") == (412, {"reason": "ResourceGroup is in use"})

        assert await pulsar.ask("DELETE", _OF_NAMESPACE) == (204, "")
        assert await pulsar.ask("GET", _OF_NAMESPACE) == (200, "")
        assert await pulsar.ask("DELETE", "/resourcegroups/g1") == (204, "")


async def test_to_end_a_group_that_is_not_there_is_a_404_where_a_broker_says_500() -> None:
    async with serving() as pulsar:
        assert await pulsar.ask("DELETE", "/resourcegroups/g1") == (404, {"reason": "ResourceGroup does not exist"})


async def test_a_group_of_the_file_is_changed_here_but_not_ended() -> None:
    async with serving(_FILE) as pulsar:
        assert await pulsar.ask("GET", "/resourcegroups") == (200, ["old"])
        assert await pulsar.ask("DELETE", "/resourcegroups/old") == (
            412,
            {"reason": "ResourceGroup stands in the configuration file: take it out there"},
        )

        await pulsar.ask("PUT", "/resourcegroups/old", {"publishRateInBytes": 100})
        assert pulsar.messages("publish", Setting.RESOURCE_GROUP, "old") == 3
        assert await pulsar.ask("DELETE", "/resourcegroups/old") == (204, "")
        assert (await pulsar.ask("GET", "/resourcegroups/old"))[1]["publishRateInBytes"] == -1


@pytest.mark.parametrize("name", ["a%20b", "%C3%A9", "a~b@c;d"])
async def test_any_line_may_be_a_name(name: str) -> None:
    async with serving() as pulsar:
        assert await pulsar.ask("PUT", f"/resourcegroups/{name}", {}) == (204, "")
        assert (await pulsar.ask("GET", f"/resourcegroups/{name}"))[0] == 200


@pytest.mark.parametrize("name", ["a%0Ab", "x" * 1025])
async def test_a_name_of_several_lines_or_without_end_is_refused_where_a_broker_takes_it(name: str) -> None:
    async with serving() as pulsar:
        said = {"reason": "ResourceGroup name is not valid: more than 1000 characters, or not in one line"}
        assert await pulsar.ask("PUT", f"/resourcegroups/{name}", {}) == (412, said)
