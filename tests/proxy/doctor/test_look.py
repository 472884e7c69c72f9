"""Two looks, and what counts of them."""

from typing import Any

import pytest
from yarl import URL

import proxy.stream_comparison as module
from proxy.importing.admin_client import connected
from proxy.stream_comparison import TooManyError, look, seen_here
from tests.proxy.importing.broker_admin import broker_admin

A, B = "persistent://t/n/a", "persistent://t/n/b"
STREAM: dict[str, Any] = {
    "direction": "publish",
    "topic": A,
    "subscription": "",
    "producer_name": "p",
    "consumer_name": "",
    "connection_id": 3,
    "stream_id": 1,
}
PUBLISHER = {"producerName": "p", "producerId": 1, "address": "/10.0.0.7:1"}


def page(*streams: dict[str, Any], left_out: int = 0) -> dict[str, Any]:
    return {"streams": list(streams), "left_out": left_out}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0)


async def looked(*pages: dict[str, Any], of_broker: dict[str, Any], **more: Any) -> tuple[int, list[str]]:
    answers = iter(pages)
    async with broker_admin(**of_broker) as broker, connected(URL(broker.url), "") as admin:
        seen = await look(admin, lambda: next(answers), **more)
    return seen.streams, seen.differences


async def test_without_a_difference_one_look_is_enough() -> None:
    of_broker: dict[str, Any] = {"persistent/t/n/a/stats": {"publishers": [PUBLISHER]}}
    assert await looked(page(STREAM), of_broker=of_broker) == (1, [])


async def test_what_is_gone_at_the_second_look_is_no_difference() -> None:
    of_broker: dict[str, Any] = {"persistent/t/n/a/stats": {"publishers": []}}
    assert await looked(page(STREAM), page(), of_broker=of_broker) == (1, [])


async def test_what_stays_is_one() -> None:
    count, differences = await looked(page(STREAM), page(STREAM), of_broker={})
    assert (count, differences) == (1, [f"only Sluice has producer 'p' on {A} (connection 3, id 1)"])


async def test_others_than_the_proxys_own_connections_do_not_count() -> None:
    other = PUBLISHER | {"producerName": "direct", "address": "/10.0.0.8:1"}
    of_broker: dict[str, Any] = {"persistent/t/n/a/stats": {"publishers": [PUBLISHER, other]}}
    assert await looked(page(STREAM), of_broker=of_broker, seen_from="10.0.0.7") == (1, [])
    assert len((await looked(page(STREAM), page(STREAM), of_broker=of_broker))[1]) == 1


async def test_everywhere_finds_what_the_proxy_knows_nothing_of() -> None:
    of_broker: dict[str, Any] = {
        "persistent/t/n/a/stats": {"publishers": [PUBLISHER]},
        "persistent/t/n/b/stats": {"publishers": [PUBLISHER]},
        "persistent/t/n": [A, B],
    }
    _, differences = await looked(page(STREAM), page(STREAM), of_broker=of_broker, everywhere=True)
    assert differences == [f"only the broker has producer 'p' on {B} (connection 10.0.0.7:1, id 1)"]


def test_an_answer_that_does_not_show_all_is_not_enough() -> None:
    with pytest.raises(TooManyError, match="7 streams are not shown"):
        seen_here(page(STREAM, left_out=7))
