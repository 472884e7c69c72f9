"""What is asked and answered here was seen at a 4.0.8 broker, but for what the names of tests say."""

import asyncio

import pytest
from yarl import URL

from limiter.levels import Client, Setting
from limiter.policies import PolicyTarget, Value
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from proxy.policies.layers import FilePolicies
from tests.proxy.admin.pulsar.serving import serving

_OF_NAMESPACE = "/namespaces/acme/shop/resourcegroup"
_FILE = FilePolicies(
    {("publish", Setting.RESOURCE_GROUP, "old"): Value(Limit(rate(3)), "file")}, {}, {"a/b": "old"}, frozenset({"old"})
)


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


async def test_a_plus_in_the_path_of_a_group_is_a_plus() -> None:
    """A broker decodes it so, although pulsar-admin writes + for a space when it attaches a namespace."""
    async with serving() as pulsar:
        for written in "gold+tier", "gold%20tier", "silver%20tier":
            url = URL(f"/admin/v2/resourcegroups/{written}", encoded=True)
            async with pulsar.client.put(url, json={}) as response:
                assert response.status == 204
        status, groups = await pulsar.ask("GET", "/resourcegroups")
        assert (status, sorted(groups)) == (200, ["gold tier", "gold+tier", "silver tier"])
        for written, group in ("gold+tier", "gold+tier"), ("gold%20tier", "gold tier"), ("gold%2Btier", "gold+tier"):
            await pulsar.client.post(URL(f"/admin/v2{_OF_NAMESPACE}/{written}", encoded=True))
            assert await pulsar.ask("GET", _OF_NAMESPACE) == (200, group)
        async with pulsar.client.post(URL(f"/admin/v2{_OF_NAMESPACE}/silver+tier", encoded=True)) as response:
            assert response.status == 412, "of pulsar-admin, which writes + for the space"


@pytest.mark.parametrize(
    "field", ["publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes"]
)
async def test_a_number_below_minus_1_is_refused(field: str) -> None:
    async with serving() as pulsar:
        status, answer = await pulsar.ask("PUT", "/resourcegroups/g1", {field: -2})
        assert (status, "-2 is no rate: write -1" in answer["reason"]) == (400, True)
        assert await pulsar.ask("GET", "/resourcegroups") == (200, [])
        assert await pulsar.ask("PUT", "/resourcegroups/g1", {field: -1}) == (204, "")


async def test_a_group_of_unknown_keys_alone_is_refused() -> None:
    async with serving(_FILE) as pulsar:
        for name in ("old", "new"):
            status, answer = await pulsar.ask("PUT", f"/resourcegroups/{name}", {"publishRateInMsg": 60})
            assert (status, "publishRateInMsgs" in answer["reason"]) == (412, True)
        assert await pulsar.ask("GET", "/resourcegroups") == (200, ["old"])
        assert await pulsar.ask("PUT", "/resourcegroups/old", {"publishRateInMsgs": 60, "next": 1}) == (204, "")


async def test_an_empty_body_leaves_a_group_of_the_file_as_it_is() -> None:
    """pulsar-admin sends one to make or update a group without options."""
    async with serving(_FILE) as pulsar:
        assert await pulsar.ask("PUT", "/resourcegroups/old", {}) == (204, "")
        assert pulsar.messages("publish", Setting.RESOURCE_GROUP, "old") == 3


async def test_a_tenant_is_attached_and_detached_by_a_path_of_sluices_own() -> None:
    of_tenant, file = "/sluice/tenants/{}/resourcegroup", FilePolicies({}, {"late": "old"}, {}, frozenset({"old"}))
    async with serving(file) as pulsar:

        async def ask(method: str, tenant: str, more: str = "") -> tuple[int, str]:
            async with pulsar.client.request(method, of_tenant.format(tenant) + more) as response:
                return response.status, await response.text()

        assert await pulsar.ask("PUT", "/resourcegroups/g1", {"publishRateInMsgs": 10}) == (204, "")
        assert await ask("GET", "acme") == (200, '{"resource_group":null}')
        assert (await ask("POST", "acme", "/g2"))[0] == 412
        assert (await ask("POST", "a b", "/g1"))[0] == 412
        assert await ask("POST", "acme", "/g1") == (204, "")
        assert await ask("GET", "acme") == (200, '{"resource_group":"g1"}')
        assert pulsar.policies.groups_of_tenants == {"acme": "g1", "late": "old"}
        assert pulsar.policies.groups_of_namespaces == {}
        assert await pulsar.ask("DELETE", "/resourcegroups/g1") == (412, {"reason": "ResourceGroup is in use"})
        topic = parse_topic("persistent://acme/shop/orders")
        within = [entry.scope.name for entry in pulsar.policies.in_force("publish", topic, Client())]
        assert within == ["g1"]
        await pulsar.ask("PUT", "/resourcegroups/g3", {"publishRateInMsgs": 5})
        assert await pulsar.ask("POST", f"{_OF_NAMESPACE}/g3") == (204, "")  # its own goes before its tenant's
        assert [entry.scope.name for entry in pulsar.policies.in_force("publish", topic, Client())] == ["g3"]
        assert await pulsar.ask("DELETE", _OF_NAMESPACE) == (204, "")
        assert await ask("DELETE", "acme") == (204, "")
        assert await ask("GET", "acme") == (200, '{"resource_group":null}')
        assert await ask("POST", "late", "/g1") == (204, "")
        assert await ask("DELETE", "late") == (204, "")
        assert await ask("GET", "late") == (200, '{"resource_group":"old"}')  # the file's holds again
        assert await pulsar.ask("DELETE", "/resourcegroups/g1") == (204, "")


async def test_to_end_a_group_that_is_not_there_is_a_404_where_a_broker_says_500() -> None:
    async with serving() as pulsar:
        assert await pulsar.ask("DELETE", "/resourcegroups/g1") == (404, {"reason": "ResourceGroup does not exist"})


async def test_a_group_of_the_file_is_changed_here_but_not_ended() -> None:
    async with serving(_FILE) as pulsar:
        assert await pulsar.ask("GET", "/resourcegroups") == (200, ["old"])
        assert await pulsar.ask("DELETE", "/resourcegroups/old") == (
            412,
            {"reason": "ResourceGroup is in the configuration file: remove it there"},
        )

        await pulsar.ask("PUT", "/resourcegroups/old", {"publishRateInBytes": 100})
        assert pulsar.messages("publish", Setting.RESOURCE_GROUP, "old") == 3
        assert await pulsar.ask("DELETE", "/resourcegroups/old") == (204, "")
        assert (await pulsar.ask("GET", "/resourcegroups/old"))[1]["publishRateInBytes"] == -1


async def test_a_group_of_which_the_file_says_only_the_name_is_one_like_others() -> None:
    async with serving(FilePolicies({}, {}, {}, frozenset({"idle"}))) as pulsar:
        assert await pulsar.ask("GET", "/resourcegroups") == (200, ["idle"])
        status, group = await pulsar.ask("GET", "/resourcegroups/idle")
        assert (status, set(group.values())) == (200, {-1})
        assert await pulsar.ask("POST", f"{_OF_NAMESPACE}/idle") == (204, "")
        assert await pulsar.ask("GET", _OF_NAMESPACE) == (200, "idle")
        assert await pulsar.ask("PUT", "/resourcegroups/idle", {"publishRateInMsgs": 7}) == (204, "")
        assert pulsar.messages("publish", Setting.RESOURCE_GROUP, "idle") == 7
        assert await pulsar.ask("DELETE", "/resourcegroups/idle") == (204, "")
        assert pulsar.messages("publish", Setting.RESOURCE_GROUP, "idle") is None
        assert await pulsar.ask("DELETE", "/resourcegroups/idle") == (
            412,
            {"reason": "ResourceGroup is in the configuration file: remove it there"},
        )


@pytest.mark.parametrize("name", ["a%20b", "%C3%A9", "a~b@c;d"])
async def test_any_line_may_be_a_name(name: str) -> None:
    async with serving() as pulsar:
        assert await pulsar.ask("PUT", f"/resourcegroups/{name}", {}) == (204, "")
        assert (await pulsar.ask("GET", f"/resourcegroups/{name}"))[0] == 200


@pytest.mark.parametrize("name", ["a%0Ab", "x" * 1025])
async def test_a_name_of_several_lines_or_without_end_is_refused_where_a_broker_takes_it(name: str) -> None:
    async with serving() as pulsar:
        refusal = {"reason": "ResourceGroup name is not valid: more than 1000 characters, or not in one line"}
        assert await pulsar.ask("PUT", f"/resourcegroups/{name}", {}) == (412, refusal)


async def test_rates_that_a_body_leaves_out_keep_the_files_mode() -> None:
    dispatch = Limit(rate(30, 60 * 10**9), mode="observe")
    limits: dict[PolicyTarget, Value] = {
        ("publish", Setting.RESOURCE_GROUP, "gold"): Value(Limit(rate(5), mode="observe"), "file"),
        ("dispatch", Setting.RESOURCE_GROUP, "gold"): Value(dispatch, "file"),
    }
    async with serving(FilePolicies(limits, {}, {"a/b": "gold"}, frozenset({"gold"}))) as pulsar:
        assert await pulsar.ask("PUT", "/resourcegroups/gold", {"publishRateInMsgs": 7}) == (204, "")
        held = [pulsar.policies.get(*place) for place in limits]
        assert held == [Value(Limit(rate(7), mode="observe"), "rest"), Value(dispatch, "file")]
        assert (await pulsar.ask("GET", "/resourcegroups/gold"))[1]["publishRateInMsgs"] == 7


async def test_of_two_at_once_that_each_say_one_rate_both_hold() -> None:
    async with serving() as pulsar:
        for number in range(1, 11):
            bodies = {"publishRateInMsgs": number}, {"dispatchRateInMsgs": number}
            await asyncio.gather(*(pulsar.ask("PUT", "/resourcegroups/g1", body) for body in bodies))
            _, group = await pulsar.ask("GET", "/resourcegroups/g1")
            assert (group["publishRateInMsgs"], group["dispatchRateInMsgs"]) == (number, number)


async def test_a_group_is_ended_or_attached_but_not_both_at_once() -> None:
    async with serving() as pulsar:
        for _ in range(10):
            await pulsar.ask("PUT", "/resourcegroups/g1", {})
            asked = [("POST", f"{_OF_NAMESPACE}/g1"), ("DELETE", "/resourcegroups/g1")]
            answers = await asyncio.gather(*(pulsar.ask(*question) for question in asked))
            assert sorted(status for status, _ in answers) == [204, 412]
            await pulsar.ask("DELETE", _OF_NAMESPACE)
