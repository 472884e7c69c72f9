"""Bodies on their way to the broker: so large, so slow, and no larger or slower."""

import asyncio
import contextlib
import io
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from proxy.admin.forwarding.broker import PART
from tests.proxy.admin.forwarding.fake_broker import fake_broker, front, raw_broker, until
from tests.proxy.loop_time import later

new_event_loop = asyncio.new_event_loop
"""Its clock can be moved by hand."""

PACKAGES = "/admin/v3/packages/function/a/b/c/1"


async def in_parts(*parts: bytes, never: asyncio.Event | None = None) -> Any:
    for part in parts:
        yield part
    if never:
        await never.wait()


@pytest.mark.parametrize("is_declared", [True, False])
async def test_a_body_up_to_the_bound_passes_and_a_larger_one_is_refused(*, is_declared: bool) -> None:
    async with fake_broker() as broker, front(broker.url, max_body=100) as sluice:
        for size, status in ((100, 200), (101, 413)):
            body: Any = io.BytesIO(bytes(size)) if is_declared else in_parts(bytes(size))
            assert (await sluice.ask("PUT", PACKAGES, data=body))[0] == status
        assert len(broker.asked) == 1
        assert sluice.admin.engine.counters.admin_refused["size"] == 1
        status, reason = await sluice.reason("PUT", PACKAGES, data=in_parts(bytes(101)))
        assert reason == f"PUT {PACKAGES}: a body of more than 100 bytes (admin_forward.max_body)"


async def test_forwarded_body_may_be_larger_than_a_body_for_sluice() -> None:
    async with fake_broker() as broker, front(broker.url, {"max_body": 100}) as sluice:
        assert (await sluice.ask("PUT", PACKAGES, data=bytes(1000)))[0] == 200
        own = "/admin/v2/namespaces/acme/shop/publishRate"
        status, reason = await sluice.reason("POST", own, data=b" " * 101, headers={"Content-Type": "application/json"})
        assert (status, "admin_access.max_body" in reason) == (413, True)


async def test_one_that_turns_out_too_large_under_way_ends_at_the_broker_too() -> None:
    async with fake_broker() as broker, front(broker.url, max_body=3 * PART) as sluice:
        assert (await sluice.ask("PUT", PACKAGES, data=in_parts(*[bytes(PART)] * 5)))[0] == 413
        assert broker.asked == []
        assert sluice.outcomes == {"client": 1}
        assert sluice.admin.engine.counters.admin_refused["size"] == 1


@pytest.mark.parametrize("parts", [(b"{",), (bytes(PART), bytes(PART), b"x")])
async def test_one_that_does_not_come_is_not_waited_for(parts: tuple[bytes, ...]) -> None:
    never = asyncio.Event()
    async with fake_broker() as broker, front(broker.url, {"request_timeout": "200ms"}) as sluice:
        status, reason = await sluice.reason("PUT", PACKAGES, data=in_parts(*parts, never=never))
        assert (status, "within 0.2 s (admin_access.request_timeout)" in reason) == (408, True)
        assert broker.asked == []
        assert sluice.admin.engine.counters.admin_refused["time"] == 1


async def test_a_large_one_may_take_longer_than_a_whole_request_if_it_goes_on() -> None:
    come = bytearray()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not come.endswith(b"\r\n0\r\n\r\n"):
            come.extend(await reader.read(PART))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def slowly() -> Any:
        for size in (PART, 2 * PART, 3 * PART):
            yield bytes(PART)
            await until(lambda size=size: len(come) >= size)  # type: ignore[misc]  # mypy knows no such lambda
            await later(3)

    async with raw_broker(take) as url, front(url, {"request_timeout": "4s"}, timeout="4s") as sluice:
        assert await sluice.ask("PUT", PACKAGES, data=slowly()) == (200, b"")
        assert len(come) > 3 * PART


async def test_one_that_breaks_off_is_the_clients_fault() -> None:
    async with fake_broker() as broker, front(broker.url) as sluice:
        reader, writer = await asyncio.open_connection(*sluice.url.removeprefix("http://").split(":"))
        head = f"PUT {PACKAGES} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode() + b"nonsense\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
        await writer.wait_closed()
        assert broker.asked == []


async def test_a_broker_may_answer_before_it_has_all_of_it() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        await reader.read()

    async with raw_broker(refuse) as url, front(url) as sluice:
        assert await sluice.ask("PUT", PACKAGES, data=in_parts(*[bytes(PART)] * 3)) == (403, b"no")
        assert sluice.outcomes == {"refused": 1}


async def test_a_caller_that_does_not_take_the_answer_is_left() -> None:
    async def much(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(PART))

    async with fake_broker(much) as broker, front(broker.url, {"request_timeout": "500ms"}) as sluice:
        reader, writer = await asyncio.open_connection(*sluice.url.removeprefix("http://").split(":"), limit=1)
        writer.write(f"GET {PACKAGES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await until(lambda: bool(sluice.outcomes))
        assert sluice.outcomes == {"client": 1}
        assert reader
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_caller_that_takes_the_answer_slowly_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    turns = asyncio.Semaphore(1)
    write = web.StreamResponse.write

    async def slowly(response: web.StreamResponse, piece: bytes) -> None:
        sizes.append(len(piece))
        await later(3)
        await write(response, piece)
        turns.release()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while await turns.acquire():
            writer.write(bytes(1000))

    monkeypatch.setattr(web.StreamResponse, "write", slowly)
    async with raw_broker(answer) as url, front(url, {"request_timeout": "10s"}) as sluice:
        with pytest.raises(aiohttp.ClientError):
            await sluice.ask("GET", PACKAGES)
        assert (sizes, sluice.outcomes) == ([1000] * 4, {"client": 1})
