"""A request's body on its way to the broker: bounded in size and time, in parts, so that memory is, too."""

import asyncio
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from proxy.admin.connections import connection_of

PART = 1024 * 1024
"""Bytes that are read before the broker gets any. A body that is no longer can be sent again where a broker says so."""


class BodyRefusedError(Exception):
    """It does not come in time, is too large, or breaks off.

    Args:
        status: Of HTTP.
        reason: What the caller is told.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ClientBody:
    """One body. Each part has as much time as a whole request has that is not passed on.

    Args:
        request: Whose.
        most: Bytes that it may have.
        patience_s: For each part.
    """

    def __init__(self, request: web.Request, most: int, patience_s: float) -> None:
        self._request = request
        self._most = most
        self._patience_s = patience_s
        self._size = 0
        self._is_at_end = False
        self._is_sent_on = False
        self.first = b""
        self.is_whole = False
        """Whether the first part is all of it."""
        self.problem: BodyRefusedError | None = None
        """Why it ended too early, if it did; the broker then has some of it."""

    async def begin(self) -> None:
        """Read the first part.

        Raises:
            BodyRefusedError: If it cannot be had.
        """
        declared = self._request.content_length
        if declared is not None and declared > self._most:
            raise self._too_large()
        connection, now = connection_of(self._request), asyncio.get_running_loop().time()
        self.first = await self._read(connection.due if connection else now + self._patience_s)
        self.is_whole = self._is_at_end
        if connection:
            connection.request_is_there()

    def for_broker(self, when: Callable[[bool], None]) -> bytes | AsyncIterator[bytes] | None:
        """What is sent: once, or as often as one likes if it is whole.

        Args:
            when: Told whether it is the client's turn (True) or the broker's.
        """
        if self.is_whole:
            return self.first or None
        assert not self._is_sent_on, "the parts that were sent are gone"
        self._is_sent_on = True
        return self._parts(when)

    async def _parts(self, when: Callable[[bool], None]) -> AsyncIterator[bytes]:
        part = self.first
        while part:
            yield part
            when(True)
            try:
                part = await self._read(asyncio.get_running_loop().time() + self._patience_s)
            except BodyRefusedError as error:
                self.problem = error
                raise
            when(False)

    async def _read(self, due: float) -> bytes:
        part = bytearray()
        try:
            async with asyncio.timeout_at(due):
                while len(part) < PART and not self._is_at_end:
                    piece = await self._request.content.read(PART - len(part))
                    self._is_at_end = not piece
                    part += piece
        except TimeoutError:
            seconds = f"{self._patience_s:g} s (admin_access.request_timeout)"
            raise BodyRefusedError(408, f"no {PART} bytes of the body, nor its end, within {seconds}") from None
        except (web.RequestPayloadError, ConnectionError):
            raise BodyRefusedError(400, "the body breaks off or is not as its headers say") from None
        self._size += len(part)
        if self._size > self._most:
            raise self._too_large()
        return bytes(part)

    def _too_large(self) -> BodyRefusedError:
        return BodyRefusedError(413, f"a body of more than {self._most} bytes (admin_forward.max_body)")
