"""A broker's answer that is read here; see test_forwarder.py for those that are handed on."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from proxy.admin.forwarding import forwarder as module
from tests.proxy.admin.forwarding.fake_broker import fake_broker, front, raw_broker

VALUES = "/admin/v2/brokers/configuration/values"


async def test_one_that_is_too_long_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_JSON", 10)

    async def handler(_request: web.Request) -> web.Response:
        return web.json_response({"much": "too much"})

    async with fake_broker(handler) as broker, front(broker.url) as sluice:
        status, reason = await sluice.reason("GET", VALUES)
        assert (status, "has more than 10 bytes" in reason) == (502, True)


async def test_one_that_breaks_off_is_told() -> None:
    async def handler(request: web.Request) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with fake_broker(handler) as broker, front(broker.url) as sluice:
        status, reason = await sluice.reason("GET", VALUES)
        assert (status, "the broker's answer breaks off" in reason) == (502, True)
        assert sluice.outcomes == {"broken_off": 1}


async def test_an_empty_one_without_a_length_gets_one_and_no_content_type() -> None:
    """With one, pulsar-admin waits for ever: seen with `brokers update-dynamic-config`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        writer.close()

    async with (
        raw_broker(handle) as url,
        front(url) as sluice,
        sluice.session.post(sluice.url + "/admin/v2/x") as answer,
    ):
        assert (answer.status, await answer.read(), answer.headers["Content-Length"]) == (200, b"", "0")
        assert not {"Content-Type", "Transfer-Encoding"} & set(answer.headers)
