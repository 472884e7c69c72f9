"""Refusals of the admin address: the error that the caller gets, counted for /metrics, and logged once in a while."""

import json
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import TypedDict

import structlog
from aiohttp import web

from proxy.observe.operator_log import ThrottledLog


class Refusal(TypedDict):
    """The body of every error."""

    reason: str


def refusal(status: int, reason: str) -> web.Response:
    """Return an error in the form of Pulsar's own admin, to the byte: pulsar-admin prints it."""
    text = json.dumps({"reason": reason}, separators=(",", ":"))
    return web.Response(status=status, text=text, content_type="application/json")


class RefusalCause(StrEnum):
    """The cause of a refusal."""

    MISSING = "missing"
    """No token, or no certificate."""
    WRONG = "wrong"
    """A token or certificate that is not known."""
    READ_ONLY = "read_only"
    """A token or certificate that may only read."""
    TENANT = "tenant"
    """A token for some tenants, and a request that is not about them."""
    RATE = "rate"
    SIZE = "size"
    ENCODING = "encoding"
    """A body with a `Content-Encoding`, which would be larger than it says."""
    TIME = "time"
    BUSY = "busy"
    """A second large policy set while there is one, or too many requests of one caller."""
    CONNECTIONS = "connections"
    TLS = "tls"
    """The TLS handshake failed."""
    HOST = "host"
    """A `Host` that may be the name of a web page."""
    CROSS_SITE = "cross_site"
    """A request from a web page of another site."""


class CallerRefusedError(Exception):
    """A caller may not send this request.

    Args:
        status: The HTTP status.
        why: The cause to count.
        reason: The reason for the caller.
    """

    def __init__(self, status: int, why: RefusalCause, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.why = why


class RefusalLog:
    """Counts refusals, and writes a line for each cause with the number since the last line.

    Args:
        counts: The counts by cause, shown on `/metrics`.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, counts: Counter[str], clock: Callable[[], int]) -> None:
        self._counts = counts
        self._lines = ThrottledLog(clock)
        self._log = structlog.get_logger()

    def count(self, why: RefusalCause, detail: str, caller: str) -> None:
        """Count a refusal of the caller at this address, and log it if a line is due."""
        self._counts[why.value] += 1
        times = self._lines.due(why.value)
        if times:
            self._log.warning("admin address: refused", kind=why.value, detail=detail, caller=caller, refused=times)
