"""Dynamic configuration and replication: a part is Sluice's, the rest the broker's."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from proxy import typed_json
from tests.proxy.admin.forwarding.fake_broker import FakeBroker, Front, fake_broker, front

ALL = "/admin/v2/brokers/configuration"
OURS, THEIRS = "maxPublishRatePerTopicInMessages", "brokerDeleteInactiveTopicsFrequencySeconds"


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async def handler(request: web.Request) -> web.Response:
        if request.path == ALL:
            return web.json_response([THEIRS, OURS])
        return web.json_response({THEIRS: "60", OURS: "1", "dispatchThrottlingRateInMsg": "7"})

    async with fake_broker(handler) as broker:
        yield broker


@pytest.fixture
async def sluice(broker: FakeBroker) -> AsyncIterator[Front]:
    async with front(broker.url) as sluice:
        yield sluice


async def ask(sluice: Front, path: str) -> object:
    async with sluice.session.get(sluice.url + path) as answer:
        return await answer.json()


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_key_that_is_no_limit_is_the_brokers(broker: FakeBroker, sluice: Front, method: str) -> None:
    target = f"{ALL}/{THEIRS}" + ("/60" if method == "POST" else "")
    assert (await sluice.ask(method, target))[0] == 200
    assert [(asked.method, asked.target) for asked in broker.asked] == [(method, target)]


@pytest.mark.parametrize(
    ("method", "more", "status"), [("POST", "/5", 200), ("DELETE", "", 200), ("POST", "/many", 412)]
)
async def test_a_key_that_is_a_limit_stays_here(
    broker: FakeBroker, sluice: Front, method: str, more: str, status: int
) -> None:
    assert (await sluice.ask(method, f"{ALL}/{OURS}{more}"))[0] == status
    assert broker.asked == []


async def test_keys_of_both_are_listed_once(sluice: Front) -> None:
    names = await ask(sluice, ALL)
    assert isinstance(names, list)
    assert {OURS, THEIRS, "subscribeThrottlingRatePerConsumer"} < set(names)
    assert names == sorted(set(names))


async def test_values_of_both_are_shown_each_where_it_is_changed(sluice: Front) -> None:
    await sluice.ask("POST", f"{ALL}/{OURS}/5")
    assert await ask(sluice, f"{ALL}/values") == {THEIRS: "60", OURS: "5"}
    assert sluice.outcomes == {"done": 1}


async def test_a_key_that_is_a_limit_is_set_only_where_it_is_set_here(broker: FakeBroker, sluice: Front) -> None:
    assert await ask(sluice, f"{ALL}/values") == {THEIRS: "60"}
    await sluice.ask("POST", f"{ALL}/{OURS}/5")
    await sluice.ask("DELETE", f"{ALL}/{OURS}")
    assert await ask(sluice, f"{ALL}/values") == {THEIRS: "60"}
    assert {asked.method for asked in broker.asked} == {"GET"}


@pytest.mark.parametrize(("status", "text"), [(403, '{"reason":"not you"}'), (200, "<html>"), (200, '{"a": 1}')])
async def test_what_the_broker_does_not_say_is_not_left_out_in_silence(
    broker: FakeBroker, sluice: Front, status: int, text: str
) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    broker.handler = handler
    code, reason = await sluice.reason("GET", f"{ALL}/values")
    assert code == (403 if status == 403 else 502)
    assert reason.startswith(f"GET {ALL}/values: {broker.url}{ALL}/values: ")


@pytest.mark.parametrize("path", [ALL, f"{ALL}/values"])
async def test_loop_reads_no_long_list_of_a_broker(
    broker: FakeBroker, sluice: Front, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    names = [f"key{number:05}" for number in range(12_000)]

    async def handler(request: web.Request) -> web.Response:
        return web.json_response(names if request.path == ALL else dict.fromkeys(names, "5"))

    read_on_loop: list[int] = []
    own, loops = typed_json.decode, threading.get_ident()

    def decode(text: bytes | str, kind: Any) -> Any:
        if threading.get_ident() == loops:
            read_on_loop.append(len(text))
        return own(text, kind)

    monkeypatch.setattr(typed_json, "decode", decode)
    broker.handler = handler
    answer = await ask(sluice, path)
    assert isinstance(answer, list | dict)
    assert [name for name in answer if name.startswith("key")] == names
    assert read_on_loop == []


async def test_longest_list_of_a_broker_is_bounded(broker: FakeBroker, sluice: Front) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response(["x" * 256 * 1024])

    broker.handler = handler
    assert (await sluice.reason("GET", ALL))[0] == 502


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("where", ["namespaces/acme/shop", "persistent/acme/shop/orders"])
async def test_rates_of_replication_are_the_brokers(broker: FakeBroker, sluice: Front, method: str, where: str) -> None:
    target = f"/admin/v2/{where}/replicatorDispatchRate"
    assert (await sluice.ask(method, target))[0] == 200
    assert broker.paths == [target]
