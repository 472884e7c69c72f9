"""A broker's answer: handed on as it comes, or read."""

import asyncio
from typing import TypeVar

import aiohttp
import msgspec
import structlog
from aiohttp import web

from proxy.admin.forwarding.headers import answering
from proxy.admin.forwarding.outcome import ForwardError, Outcome, outcome_of

T = TypeVar("T")
_MOST_JSON = 4 * 1024**2
"""Bytes of an answer that is read here."""


class _NotTakenError(Exception):
    """The caller does not take the answer."""


async def hand_on(
    answer: aiohttp.ClientResponse, request: web.Request, patience_s: float
) -> tuple[web.StreamResponse, Outcome]:
    """Give the caller what the broker says, as it comes.

    Args:
        answer: The broker's.
        request: The caller's.
        patience_s: How long the caller may take none of it.
    """
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=answering(answer.headers))
    response.content_length = answer.content_length
    try:
        piece = await answer.content.readany()
        if not piece and answer.content_length is None and request.method != "HEAD":
            response.content_length = 0  # else aiohttp invents a content type, and pulsar-admin waits for ever
        await response.prepare(request)
        while piece:
            await _write(response, piece, patience_s)
            piece = await answer.content.readany()
        await response.write_eof()
    except (aiohttp.ClientConnectionResetError, _NotTakenError):
        _abort(request)
        return response, Outcome.CLIENT
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        what = {"path": request.path, "error": str(error) or type(error).__name__}
        structlog.get_logger().warning("the broker's answer broke off", **what)
        _abort(request)
        return response, Outcome.BROKEN_OFF
    return response, outcome_of(answer.status)


async def json_in(answer: aiohttp.ClientResponse, kind: type[T]) -> T:
    """What an answer holds.

    Raises:
        ForwardError: If it is an error, breaks off, is too long, or not what it should be.
    """
    try:
        text = await _all_of(answer)
        if answer.status != 200:
            said = text.decode(errors="replace")[:1000]
            raise ForwardError(answer.status, outcome_of(answer.status), f"{answer.url}: the broker says: {said}")
        return msgspec.json.decode(text, type=kind)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        told = str(error) or type(error).__name__
        raise ForwardError(502, Outcome.BROKEN_OFF, f"{answer.url}: the broker's answer breaks off: {told}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ForwardError(502, Outcome.BROKEN_OFF, f"{answer.url}: the answer is not a broker's: {error}") from None


async def _all_of(answer: aiohttp.ClientResponse) -> bytes:
    text = bytearray()
    async for piece in answer.content.iter_any():
        text += piece
        if len(text) > _MOST_JSON:
            reason = f"{answer.url}: the broker's answer has more than {_MOST_JSON} bytes"
            raise ForwardError(502, Outcome.BROKEN_OFF, reason)
    return bytes(text)


async def _write(response: web.StreamResponse, piece: bytes, patience_s: float) -> None:
    try:
        async with asyncio.timeout(patience_s):
            await response.write(piece)
    except TimeoutError:
        raise _NotTakenError from None


def _abort(request: web.Request) -> None:
    """The answer's head is gone: only the end of the connection tells that the rest is missing."""
    if request.transport is not None:
        request.transport.abort()
