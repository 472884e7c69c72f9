"""What is read of a broker's `stats`."""

from typing import Any

import pytest
from yarl import URL

from proxy.importing.admin_client import connected
from proxy.importing.result import ImportFailed
from proxy.stream_comparison import SeenStream, all_topics, on_topics
from tests.proxy.importing.broker_admin import broker_admin

A, ODD = "persistent://t/n/a", "persistent://t/n/a b/c"
STATS: dict[str, Any] = {
    "publishers": [{"producerName": "p", "producerId": 4, "address": "/10.0.0.7:1", "msgRateIn": 0.5}],
    "subscriptions": {"sub": {"consumers": [{"consumerName": "c", "address": "/10.0.0.7:2"}, {}]}, "idle": {}},
}
SEEN = [
    SeenStream("publish", A, "", "p", "10.0.0.7:1", 4),
    SeenStream("dispatch", A, "sub", "c", "10.0.0.7:2"),
    SeenStream("dispatch", A, "sub", "", ""),
]


async def test_producers_and_consumers_of_a_topic_are_read() -> None:
    async with broker_admin(**{"persistent/t/n/a/stats": STATS}) as broker, connected(URL(broker.url), "") as admin:
        assert await on_topics(admin, [A]) == SEEN


async def test_a_topic_whose_name_is_refused_here_is_looked_at_as_others() -> None:
    """A broker may have it, made past the proxy."""
    refused = "persistent://t/n/x@persistent://a/b/c"
    stats = {"persistent/t/n/x%40persistent%3A%2F%2Fa%2Fb%2Fc/stats": STATS, "persistent/t/n": [refused]}
    async with broker_admin(**stats) as broker, connected(URL(broker.url), "") as admin:
        assert await all_topics(admin, ["t/n"]) == {refused}
        assert {seen.topic for seen in await on_topics(admin, [refused])} == {refused}


async def test_a_topic_that_is_not_there_has_none() -> None:
    async with broker_admin() as broker, connected(URL(broker.url), "") as admin:
        assert await on_topics(admin, [A, ODD]) == []
        assert sorted(broker.asked) == ["clusters", "persistent/t/n/a%20b%2Fc/stats", "persistent/t/n/a/stats"]


async def test_a_refusal_is_told() -> None:
    refusing = {"persistent/t/n/a/stats": (403, {"reason": "no"})}
    async with broker_admin(**refusing) as broker, connected(URL(broker.url), "") as admin:
        with pytest.raises(ImportFailed, match="403"):
            await on_topics(admin, [A])


async def test_the_topics_of_namespaces_are_listed_without_pulsars_own() -> None:
    listed = {
        "persistent/t/n": [A, "persistent://t/n/__change_events"],
        "non-persistent/t/n": ["non-persistent://t/n/x"],
    }
    async with broker_admin(**listed) as broker, connected(URL(broker.url), "") as admin:
        assert await all_topics(admin, ["t/n", "t/gone"]) == {A, "non-persistent://t/n/x"}


async def test_a_server_that_is_no_broker_is_told() -> None:
    async with broker_admin(clusters=(404, {})) as broker, connected(URL(broker.url), "") as admin:
        with pytest.raises(ImportFailed, match="broker's web service"):
            await on_topics(admin, [])
