"""How often, how large, how slow."""

import asyncio
import gzip
import itertools
from collections import Counter
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from multidict import CIMultiDict
from structlog.testing import capture_logs

from proxy.admin.app import metrics_app
from proxy.admin.listener import MOST_KEYS, Connections, Listener, RequestLimits
from proxy.admin.refusals import RefusalLog
from proxy.config.sections import AdminAccess
from proxy.counters import Counters
from proxy.slices import Slices
from tests.proxy.admin_client import Admin
from tests.proxy.endpoints import web_at
from tests.proxy.loop_time import later

new_event_loop = asyncio.new_event_loop
"""Its clock can be moved by hand."""

BLOCKS = "/sluice/blocks"


def request_bounds(**access: Any) -> RequestLimits:
    return RequestLimits(AdminAccess.model_validate(access), RefusalLog(Counter(), lambda: 0), lambda: 0)


async def statuses(admin: Admin, number: int, path: str = "/healthz") -> list[int]:
    return [(await admin.ask("GET", path))[0] for _ in range(number)]


async def test_a_burst_passes_and_what_is_over_it_waits_for_the_rate(make_admin) -> None:
    admin: Admin = await make_admin(admin_access={"rate": "2/s", "burst": 3})
    assert await statuses(admin, 5) == [200, 200, 200, 429, 429]
    admin.clock.advance(0.5)
    assert await statuses(admin, 2) == [200, 429]
    admin.clock.advance(60)
    assert await statuses(admin, 4) == [200, 200, 200, 429]
    assert admin.engine.counters.admin_refused["rate"] == 4


async def test_who_asks_too_often_is_told_why_and_when_to_come_again(make_admin) -> None:
    admin: Admin = await make_admin(admin_access={"rate": "2/min", "burst": 1})
    await statuses(admin, 1)
    with capture_logs() as logs:
        async with admin.client.get("/metrics") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "30")
            assert await answer.json() == {
                "reason": "too many requests from 127.0.0.1: at most 2 per 60 s (admin_access.rate)"
            }
    assert [(line["kind"], line["caller"]) for line in logs] == [("rate", "127.0.0.1")]


async def test_paths_that_are_not_there_and_wrong_tokens_count_too(make_admin, tmp_path) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("a: {access: read, token: 0123456789abcdef0}\n")
    admin: Admin = await make_admin(admin_access={"rate": "1/h", "burst": 2, "tokens": tokens})
    assert await statuses(admin, 3, "/nothing/here") == [401, 401, 429]


async def test_each_address_has_a_rate_of_its_own_and_the_table_of_them_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr("proxy.admin.listener.MOST_CALLERS", 50)
    bounds = request_bounds(rate="1/h", burst=1)
    for number in range(200):
        for expected in (200, 429):
            answer = await bounds.rate(_From(f"192.0.2.{number}"), _fine)  # type: ignore[arg-type]  # what it asks for
            assert answer.status == expected
    assert len(bounds._callers) == 50


async def test_the_addresses_of_one_ipv6_network_share_a_rate() -> None:
    bounds = request_bounds(rate="1/h", burst=1)
    asked = ["2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.1"]
    answers = [await bounds.rate(_From(each), _fine) for each in asked]  # type: ignore[arg-type]
    assert [answer.status for answer in answers] == [200, 429, 200, 200, 429]


async def test_a_body_up_to_the_bound_is_read_and_a_larger_one_is_refused(make_admin) -> None:
    admin: Admin = await make_admin(admin_access={"max_body": 100})
    body = b'{"kind": "address", "name": "192.0.2.7"}'
    assert (await admin.ask("POST", BLOCKS, data=body.ljust(100)))[0] == 200
    status, answer = await admin.ask("POST", BLOCKS, data=body.ljust(101))
    assert (status, answer) == (
        413,
        {"reason": f"POST {BLOCKS}: a body of more than 100 bytes (admin_access.max_body)"},
    )
    assert admin.engine.counters.admin_refused["size"] == 1


_CODINGS = ("gzip", "deflate", "br", "zstd", "identity, gzip", "GZIP", "x-unheard-of")
_STRANGERS = ("/metrics", "/healthz", "/readyz", BLOCKS, "/admin/v2/namespaces/a/b/publishRate", "/nothing/here")


@pytest.mark.parametrize("coding", _CODINGS)
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_encoded_body_is_refused_and_never_decoded(
    make_admin, tmp_path, monkeypatch: pytest.MonkeyPatch, coding: str, *, is_chunked: bool
) -> None:
    decoded: list[int] = []
    monkeypatch.setattr(
        "aiohttp.http_parser.DeflateBuffer.feed_data", lambda _self, data, *_: decoded.append(len(data))
    )
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("a: {access: read, token: 0123456789abcdef0}\n")
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    counts: Counter[str] = Counter()
    bounds = RequestLimits(AdminAccess(), RefusalLog(counts, lambda: 0), lambda: 0)
    refused = RefusalLog(Counter(), lambda: 0)
    packed = gzip.compress(bytes(1_000_000))
    sent = f"{len(packed):x}\r\n".encode() + packed + b"\r\n0\r\n\r\n" if is_chunked else packed
    how = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(packed)}"
    metrics = metrics_app(admin.engine, admin.metrics, admin.readiness, admin.parts, bounds)
    for app in (admin.app, metrics):
        listener = Listener(app, Connections(50, 30, refused, admin.engine.slices))
        host, _, port = (await listener.start(web_at("127.0.0.1:0"))).rpartition(":")
        for method, path in itertools.product(("GET", "POST", "PUT"), _STRANGERS):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: {coding}\r\n{how}\r\n\r\n"
            writer.write(head.encode() + sent)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 415 "), answer[:200]
            assert b"Accept-Encoding: identity\r\n" in answer
            writer.close()
        await listener.stop()
    assert decoded == []
    assert admin.engine.counters.admin_refused == {"encoding": 3 * len(_STRANGERS)} == counts


async def test_query_of_too_many_keys_is_not_read(make_admin) -> None:
    admin: Admin = await make_admin()
    for keys, status in ((MOST_KEYS, 400), (MOST_KEYS + 1, 413)):
        assert (await admin.ask("GET", "/sluice/streams?" + "&".join("a=1" for _ in range(keys + 1))))[0] == status


async def test_body_named_as_not_encoded_is_read(make_admin) -> None:
    admin: Admin = await make_admin()
    for coding in ("identity", "Identity", ""):
        body = b'{"kind": "address", "name": "192.0.2.7"}'
        assert (await admin.ask("POST", BLOCKS, data=body, headers={"Content-Encoding": coding}))[0] == 200


async def test_body_that_says_that_it_is_too_large_is_not_read() -> None:
    refused = RefusalLog(Counter(), lambda: 0)
    bounds = RequestLimits(AdminAccess.model_validate({"max_body": 100}), refused, lambda: 0)
    app = web.Application(middlewares=[bounds.body], client_max_size=bounds.most_bytes)
    app.add_routes([web.post("/", _fine)])
    listener = Listener(app, Connections(5, 30, refused, Slices(Counters())))
    reader, writer = await asyncio.open_connection(*(await listener.start(web_at("127.0.0.1:0"))).split(":"))
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()
    await listener.stop()


_SETS = "/sluice/policies"
_JSON = {"Content-Type": "application/json"}
_EMPTY_SET = b'{"limits": {}}'


async def test_a_whole_policy_set_has_a_bound_of_its_own(make_admin) -> None:
    admin: Admin = await make_admin(admin_access={"max_body": 100, "max_policies_body": 1000})
    for length in (50, 101, 1000):
        assert (await admin.ask("PUT", _SETS, data=_EMPTY_SET.ljust(length), headers=_JSON))[0] == 200
    status, answer = await admin.ask("PUT", _SETS, data=_EMPTY_SET.ljust(1001), headers=_JSON)
    reason = f"PUT {_SETS}: a body of more than 1000 bytes (admin_access.max_policies_body)"
    assert (status, answer) == (413, {"reason": reason})
    assert (await admin.ask("POST", _SETS, data=_EMPTY_SET.ljust(101), headers=_JSON))[0] == 413
    assert (await admin.ask("PUT", "/sluice/limits", data=_EMPTY_SET.ljust(101), headers=_JSON))[0] == 413


async def test_of_two_large_sets_at_once_the_second_is_to_come_again_and_small_ones_pass() -> None:
    counts: Counter[str] = Counter()
    access = AdminAccess.model_validate({"max_body": 100})
    bounds = RequestLimits(access, RefusalLog(counts, lambda: 0), lambda: 0)
    begun, end = asyncio.Event(), asyncio.Event()

    async def apply(request: web.Request) -> web.Response:
        if len(await request.read()) > 100:
            begun.set()
            await end.wait()
        return web.Response()

    app = web.Application(middlewares=[bounds.body], client_max_size=bounds.most_bytes)
    app.add_routes([web.put(_SETS, apply)])
    async with TestClient(TestServer(app)) as client:
        first = asyncio.ensure_future(client.put(_SETS, data=b" " * 101))
        await begun.wait()
        async with client.put(_SETS, data=b" " * 101) as second:
            assert (second.status, second.headers["Retry-After"]) == (503, "5")
            assert "another large policy set is being read" in (await second.json())["reason"]
        assert (await client.put(_SETS, data=b" " * 100)).status == 200
        end.set()
        assert (await first).status == 200
        assert (await client.put(_SETS, data=b" " * 101)).status == 200
    assert counts == {"busy": 1}


async def test_a_large_set_of_a_stranger_is_not_read(make_admin, tmp_path) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.touch(mode=0o600)
    tokens.write_text("a: {access: read, token: 0123456789abcdef0}\n")
    admin: Admin = await make_admin(admin_access={"tokens": tokens, "max_body": 10, "max_policies_body": 10})
    body = b"x" * 100
    assert (await admin.ask("PUT", _SETS, data=body, headers=_JSON))[0] == 401
    reader = {"Authorization": "Bearer 0123456789abcdef0"}
    assert (await admin.ask("PUT", _SETS, data=body, headers=_JSON | reader))[0] == 403


async def test_a_body_that_does_not_come_is_not_waited_for(make_admin) -> None:
    admin: Admin = await make_admin(admin_access={"request_timeout": "10ms"})
    never = asyncio.Event()

    async def body():
        yield b"{"
        await never.wait()

    status, answer = await admin.ask("POST", BLOCKS, data=body())
    assert (status, answer) == (
        408,
        {"reason": f"POST {BLOCKS}: no request within 0.01 s (admin_access.request_timeout)"},
    )
    assert admin.engine.counters.admin_refused["time"] == 1


class _From:
    """A request of which nothing is known but whence it comes."""

    transport = None
    raw_path = "/"
    headers = CIMultiDict[str]()

    def __init__(self, remote: str) -> None:
        self.remote = remote


async def _fine(_request: web.Request) -> web.Response:
    return web.Response()


@pytest.mark.parametrize(("rate", "seconds"), [("200/s", 1), ("1/s", 1), ("1/min", 60), ("7/min", 9)])
def test_when_to_come_again_is_said_in_whole_seconds(rate: str, seconds: int) -> None:
    assert request_bounds(rate=rate)._retry_after_s == seconds


async def test_the_time_runs_for_the_client_only_and_an_idle_connection_is_nobodys_fault() -> None:
    counts: Counter[str] = Counter()
    refused = RefusalLog(counts, lambda: 0)
    bounds = RequestLimits(AdminAccess.model_validate({"request_timeout": "30s"}), refused, lambda: 0)

    async def takes_longer(_request: web.Request) -> web.Response:
        await later(60)
        return web.Response(text="done\n")

    app = web.Application(middlewares=[bounds.rate, bounds.body])
    app.add_routes([web.get("/", takes_longer)])
    listener = Listener(app, Connections(5, 30, refused, Slices(Counters())))
    reader, writer = await asyncio.open_connection(*(await listener.start(web_at("127.0.0.1:0"))).split(":"))
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await reader.readuntil(b"done\n")
    await later(60)
    assert await reader.read() == b""
    writer.close()
    await listener.stop()
    assert counts == {}
