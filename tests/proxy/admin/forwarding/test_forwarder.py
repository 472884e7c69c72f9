"""What Sluice does not serve goes to the broker as it came; what it serves never does."""

import asyncio
import gzip
import io
import json
import threading
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from proxy.admin.forwarding.broker import PART
from proxy.policies import large_json
from tests.proxy.admin.forwarding.fake_broker import FakeBroker, Front, fake_broker, front, until
from tests.waiting import PATIENCE_S

TENANTS = "/admin/v2/tenants"
SERVED = "/admin/v2/namespaces/acme/shop/publishRate"


@pytest.mark.parametrize(
    "target",
    [
        TENANTS,
        "/lookup/v2/topic/persistent/acme/shop/orders",
        "/admin/v2/persistent/acme/shop/a%2Fb%20c/stats?getPreciseBacklog=true&x=a+b%2Bc&y=%c3%A9",
        "/admin/v2/persistent/acme/shop/orders/subscription/s%3A1%3Bx/skip/5",
        "/admin/v2/persistent/acme/shop/%E2%82%ac/stats",
        "/admin/v3/functions/acme/shop/f",
        "/admin/v2/brokers/configuration/runtime",
        "/admin/persistent/acme/cluster/shop/orders/stats",
        "/admin/v2/namespaces/acme/shop/replicatorDispatchRate",
    ],
)
async def test_the_path_arrives_byte_for_byte(broker: FakeBroker, sluice: Front, target: str) -> None:
    assert await sluice.ask("GET", target) == (200, b'{"ok": true}')
    assert broker.paths == [target]


async def test_request_for_another_process_reaches_no_broker(broker: FakeBroker, sluice: Front) -> None:
    for process, status, paths in (("q/boot", 421, []), ("p/boot", 200, [TENANTS])):
        assert (await sluice.ask("GET", TENANTS, headers={"Sluice-Process": process}))[0] == status
        assert broker.paths == paths


@pytest.mark.parametrize(
    "target",
    [
        "/admin/v2/namespaces/public/a/x%2f..%2fpublishRate",
        "/admin/v2/namespaces/public/a/publishRate%2f",
        "/admin/v2/namespaces/public/a/publishRate%3b",
        "/admin/v2/namespaces/public/a/publishRate%3bx",
        "/admin/v2/namespaces/public/a%2fpublishRate",
        "/admin/v2/namespaces/public/a%252fpublishRate",
        "/admin/v2/namespaces/public/a/publish%2552ate",
        "/admin/v2%2Fpersistent/public/a/x%252Fy/publishRate",
        "/admin/v2/persistent/public/a/x%7By%7D/publishRate",
        "/admin/v2/brokers/configuration%2fmaxPublishRatePerTopicInMessages/1",
        "/admin/v2/brokers/configuration/maxPublishRatePerTopicInM%2565ssages/1",
        "/admin/v2/resourcegroups%2fx",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_another_spelling_of_what_is_served_here_goes_nowhere(
    broker: FakeBroker, sluice: Front, target: str, method: str
) -> None:
    assert (await sluice.ask(method, target))[0] in {400, 405}
    assert broker.paths == []


@pytest.mark.parametrize(
    "target",
    [
        "/admin/v2/namespaces/acme/shop/permissions/a+b%2Fc",
        "/admin/v2/persistent/acme/shop/orders/subscription/a%20b%2Fc%3Bd",
        "/admin/v2/brokers/configuration/zookeeperServers/a%20b%2Fc%3Bd",
        "/admin/v2/persistent/acme/shop/of%20two%2Fwords/replicatorDispatchRate",
    ],
)
async def test_names_with_encoded_slashes_arrive(broker: FakeBroker, sluice: Front, target: str) -> None:
    assert (await sluice.ask("POST", target))[0] == 200
    assert broker.paths == [target]


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
async def test_methods_and_bodies_arrive(broker: FakeBroker, sluice: Front, method: str) -> None:
    await sluice.ask(method, f"{TENANTS}/acme", data=b'{"a": 1}', headers={"Content-Type": "application/json"})
    (asked,) = broker.asked
    assert (asked.method, asked.body, asked.headers["Content-Type"]) == (method, b'{"a": 1}', "application/json")
    await sluice.ask(method, f"{TENANTS}/acme")
    assert broker.asked[1].body == b""


@pytest.mark.parametrize("size", [1024 * 1024, 1024 * 1024 + 1, 5 * 1024 * 1024 + 7])
async def test_large_bodies_arrive_whole(broker: FakeBroker, sluice: Front, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    assert (await sluice.ask("POST", "/admin/v3/functions/a/b/c", data=io.BytesIO(body[:size])))[0] == 200
    assert broker.asked[0].body == body[:size]


async def test_encoded_body_is_not_passed_on(broker: FakeBroker, sluice: Front) -> None:
    packed = gzip.compress(b"{}" * 1000)
    assert (await sluice.ask("PUT", TENANTS, data=packed, headers={"Content-Encoding": "gzip"}))[0] == 415
    assert broker.asked == []


async def test_status_reason_and_the_headers_of_messages_come_back_and_others_do_not(
    broker: FakeBroker, sluice: Front
) -> None:
    async def handler(_request: web.Request) -> web.Response:
        headers = {
            "X-Pulsar-PROPERTY-a": "b",
            "Set-Cookie": "a=b",
            "Access-Control-Allow-Origin": "*",
            "Location": "/x",
        }
        return web.Response(status=409, body=b"no", headers=headers, content_type="application/octet-stream")

    broker.handler = handler
    async with sluice.session.put(sluice.url + TENANTS) as answer:
        assert (answer.status, await answer.read(), answer.content_type) == (409, b"no", "application/octet-stream")
        assert answer.headers["X-Pulsar-PROPERTY-a"] == "b"
        assert not {"Set-Cookie", "Access-Control-Allow-Origin", "Location"} & set(answer.headers)
    assert sluice.outcomes == {"refused": 1}


async def test_packed_answers_stay_packed_and_empty_ones_empty(broker: FakeBroker, sluice: Front) -> None:
    packed = gzip.compress(b"x" * 1000)

    async def handler(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            return web.Response(status=204)
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    broker.handler = handler
    assert await sluice.ask("GET", TENANTS, headers={"Accept-Encoding": "gzip"}) == (200, packed)
    assert await sluice.ask("DELETE", TENANTS) == (204, b"")
    async with sluice.session.head(sluice.url + TENANTS) as answer:
        assert (answer.status, answer.headers["Content-Length"]) == (200, str(len(packed)))


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", SERVED, 200),
        ("PUT", SERVED, 405),
        ("GET", "/admin/v2/namespaces/acme/shop/publish%52ate", 200),
        ("GET", "/admin/v2/resourcegroups/none", 404),
        ("PATCH", TENANTS, 404),
        ("OPTIONS", TENANTS, 404),
        ("GET", "/sluice/nothing", 404),
        ("GET", "/metrics/x", 404),
        ("GET", "/status.html", 404),
        ("GET", "/adminx/v2", 404),
        ("POST", "/metrics", 405),
        ("PUT", "/admin/v2/namespaces/acme/shop/replicatorDispatchRate", 405),
    ],
)
async def test_what_sluice_serves_or_nobody_may_ask_stays_here(
    broker: FakeBroker, sluice: Front, method: str, target: str, status: int
) -> None:
    assert (await sluice.ask(method, target))[0] == status
    assert broker.asked == []


@pytest.mark.parametrize(
    "target",
    [
        SERVED + "/",
        SERVED + ";a=b",
        "/admin/v2/namespaces/acme//shop/publishRate",
        "/admin/v2/namespaces/x/../acme/shop/publishRate",
        "/admin/v2/namespaces/x/%2e%2E/acme/shop/publishRate",
        "/admin/v2/./namespaces/acme/shop/publishRate",
        "/admin/../metrics",
        "/admin/namespaces/acme/cluster/shop/publishRate",
    ],
)
async def test_no_other_spelling_sets_a_limit_at_the_broker(broker: FakeBroker, sluice: Front, target: str) -> None:
    raw = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection(*sluice.url.removeprefix("http://").split(":"))
    writer.write(raw)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.split()[1] in {b"400", b"404"}
    assert broker.asked == []


async def test_limits_are_set_here_and_the_rest_there(broker: FakeBroker, sluice: Front) -> None:
    assert (await sluice.ask("POST", SERVED, json={"publishThrottlingRateInMsg": 5}))[0] == 204
    assert (await sluice.ask("POST", "/admin/v2/namespaces/acme/shop/retention", json={}))[0] == 200
    assert broker.paths == ["/admin/v2/namespaces/acme/shop/retention"]
    assert ("publish", "acme/shop") in sluice.admin.policies


@pytest.mark.parametrize("path", ["v2/namespaces/acme/shop", "v2/namespaces/acme/s%68op", "namespaces/acme/c/shop"])
@pytest.mark.parametrize(
    "limits",
    [
        {"publishMaxMessageRate": {"c": {"publishThrottlingRateInMsg": 5}}},
        {"topicDispatchRate": {"c": {"dispatchThrottlingRateInMsg": 5}}},
        {"subscriptionDispatchRate": {"c": {}}},
        {"clusterDispatchRate": {"c": {}}},
        {"clusterSubscribeRate": {"c": {}}},
        {"resource_group_name": "gold"},
    ],
    ids=lambda limits: next(iter(limits)),
)
async def test_a_new_namespace_brings_no_limits(
    broker: FakeBroker, sluice: Front, path: str, limits: dict[str, Any]
) -> None:
    """The broker would have them, and Sluice not."""
    status, answer = await sluice.ask("PUT", f"/admin/{path}", json={"bundles": {"numBundles": 4}, **limits})
    assert (status, next(iter(limits)) in str(answer)) == (400, True)
    raw = json.dumps(limits).encode("utf-16")  # brokers read it, too
    assert (await sluice.ask("PUT", f"/admin/{path}", data=raw))[0] == 400
    assert broker.asked == []


async def test_limits_behind_blanks_are_found(broker: FakeBroker, sluice: Front) -> None:
    """The first part of a body may be blanks alone."""
    body = b" " * PART + b'{"topicDispatchRate": {"c": {"dispatchThrottlingRateInMsg": 5}}}'
    assert (await sluice.ask("PUT", "/admin/v2/namespaces/acme/shop", data=io.BytesIO(body)))[0] == 400
    assert broker.asked == []


@pytest.mark.parametrize(("size", "reader"), [(2_000, "loop"), (60_000, "thread")])
async def test_loop_reads_no_large_body_of_a_new_namespace(
    broker: FakeBroker, sluice: Front, monkeypatch: pytest.MonkeyPatch, size: int, reader: str
) -> None:
    readers = set[int]()
    own = large_json.read

    def read(text: bytes) -> Any:
        readers.add(threading.get_ident())
        return own(text)

    monkeypatch.setattr(large_json, "read", read)
    body = b'{"x":[' + b"{}," * (size // 3) + b"{}]}"
    assert (await sluice.ask("PUT", "/admin/v2/namespaces/acme/shop", data=body))[0] == 200
    assert (readers == {threading.get_ident()}, len(readers)) == (reader == "loop", 1)
    assert [asked.body for asked in broker.asked] == [body]


@pytest.mark.parametrize("body", [b"", b"null", b'{"topicDispatchRate": {}, "replicatorDispatchRate": {"c": {}}}'])
async def test_a_new_namespace_without_limits_is_the_broker_s(broker: FakeBroker, sluice: Front, body: bytes) -> None:
    assert (await sluice.ask("PUT", "/admin/v2/namespaces/acme/shop", data=body))[0] == 200
    assert broker.paths == ["/admin/v2/namespaces/acme/shop"]


async def test_no_more_requests_than_may_be_are_at_the_broker(broker: FakeBroker) -> None:
    go_on = asyncio.Event()

    async def handler(_request: web.Request) -> web.Response:
        await go_on.wait()
        return web.Response()

    broker.handler = handler
    async with front(broker.url, max_in_flight=4) as sluice:
        two = [asyncio.ensure_future(sluice.ask("GET", TENANTS)) for _ in range(2)]
        await until(lambda: len(broker.asked) == 2)
        status, reason = await sluice.reason("GET", TENANTS)
        assert (status, "2 requests are at the broker, 2 of anonymous" in reason) == (503, True)
        assert "(admin_forward.max_in_flight is 4, and each caller leaves as many): try again" in reason
        assert (await sluice.ask("GET", SERVED))[0] == 200
        go_on.set()
        assert [(await each)[0] for each in two] == [200, 200]
        assert (await sluice.ask("GET", TENANTS))[0] == 200
        assert sluice.outcomes == {"busy": 1, "done": 3}


async def test_a_client_that_hangs_up_ends_the_request_at_the_broker(broker: FakeBroker, sluice: Front) -> None:
    gone = asyncio.Event()

    async def handler(_request: web.Request) -> web.Response:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return web.Response()

    broker.handler = handler
    reader, writer = await asyncio.open_connection(*sluice.url.removeprefix("http://").split(":"))
    writer.write(f"PUT {TENANTS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    await until(lambda: len(broker.asked) == 1)
    with capture_logs() as logs:
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(gone.wait(), PATIENCE_S)
    assert sluice.outcomes == {"client": 1}
    assert [(line["outcome"], line["status"]) for line in logs] == [("client", None)]
    assert reader


async def test_an_answer_that_breaks_off_is_not_taken_for_whole(broker: FakeBroker, sluice: Front) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    broker.handler = handler
    with pytest.raises(aiohttp.ClientPayloadError):
        await sluice.ask("GET", TENANTS)
    assert sluice.outcomes == {"broken_off": 1}


async def test_who_leads_back_to_itself_is_told() -> None:
    async with fake_broker() as broker, front(broker.url) as sluice:

        async def handler(request: web.Request) -> web.Response:
            async with (
                aiohttp.ClientSession(sluice.url) as session,
                session.get(request.path, headers={"Via": request.headers["Via"]}) as answer,
            ):
                return web.json_response(await answer.json(), status=answer.status)

        broker.handler = handler
        status, reason = await sluice.reason("GET", TENANTS)
        assert (status, "admin_forward.url leads back to this address" in reason) == (508, True)


async def test_without_a_url_nothing_is_passed_on_and_the_reason_says_how_it_could_be(make_admin: Any) -> None:
    admin = await make_admin()
    status, answer = await admin.ask("GET", TENANTS)
    assert status == 404
    assert answer["reason"].endswith("ask the broker's own admin address, or set admin_forward.url")
