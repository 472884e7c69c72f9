from typing import Any
from urllib.parse import quote

import pytest
from aiohttp.test_utils import make_mocked_request

from proxy.admin.handlers import RequestRefusedError
from proxy.admin.routes.pulsar import group_in, namespace_in, subscription_in, topic_in

_GIVEN = {
    "domain": "persistent",
    "tenant": "acme",
    "namespace": "shop",
    "topic": "orders",
    "subscription": "s",
    "group": "gold",
}


def request(**names: str) -> Any:
    given = _GIVEN | names
    parts = (quote(given[name], safe="") for name in ("domain", "tenant", "namespace", "topic", "subscription"))
    return make_mocked_request("GET", f"/admin/v2/{'/'.join(parts)}", match_info=given)


def test_names_are_put_together() -> None:
    assert namespace_in(request()) == "acme/shop"
    assert topic_in(request()).full == "persistent://acme/shop/orders"
    assert subscription_in(request(subscription="a/b@c")) == "a/b@c"
    assert group_in(request(group="gold 1/é")) == "gold 1/é"


@pytest.mark.parametrize("name", ["a b", "a/b", "é", "", "x" * 1025])
def test_tenants_and_namespaces_have_pulsar_s_characters(name: str) -> None:
    for names in ({"tenant": name}, {"namespace": name}):
        with pytest.raises(RequestRefusedError) as refused:
            namespace_in(request(**names))
        assert refused.value.status == 412


@pytest.mark.parametrize("name", ["a@persistent://x", "a@non-persistent://x/y/z", "-partition-1"])
def test_a_topic_that_is_refused_is_told(name: str) -> None:
    with pytest.raises(RequestRefusedError, match="is not a topic name") as refused:
        topic_in(request(topic=name))
    assert refused.value.status == 412


@pytest.mark.parametrize("name", ["a\nb", "x" * 1025])
def test_topics_subscriptions_and_groups_are_one_line_of_a_bounded_length(name: str) -> None:
    for read, names in (
        (topic_in, {"topic": name}),
        (subscription_in, {"subscription": name}),
        (group_in, {"group": name}),
    ):
        with pytest.raises(RequestRefusedError):
            read(request(**names))


def test_a_partition_has_no_policy_of_its_own() -> None:
    with pytest.raises(RequestRefusedError, match="set it for persistent://acme/shop/orders"):
        topic_in(request(topic="orders-partition-3"))
