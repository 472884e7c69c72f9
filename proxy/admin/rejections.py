"""Rejections of the admin address: the error that the caller gets, counted for /metrics, and logged once in a while."""

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
    """An error in the form that Pulsar's own admin gives, to the byte: pulsar-admin prints it."""
    text = json.dumps({"reason": reason}, separators=(",", ":"))
    return web.Response(status=status, text=text, content_type="application/json")


class Rejection(StrEnum):
    """Why somebody is refused."""

    MISSING = "missing"
    """No token, or no certificate."""
    WRONG = "wrong"
    """A token or certificate that is nobody's."""
    READ_ONLY = "read_only"
    """One that may only read."""
    RATE = "rate"
    SIZE = "size"
    TIME = "time"
    BUSY = "busy"
    """A second large policy set while there is one."""
    CONNECTIONS = "connections"
    TLS = "tls"
    """No TLS handshake came about."""
    HOST = "host"
    """By a name that may be a web page's."""
    CROSS_SITE = "cross_site"
    """From a web page of another site."""


class CallerRefusedError(Exception):
    """A caller may not do what he asks for.

    Args:
        status: Of HTTP.
        why: What is counted.
        reason: What he is told.
    """

    def __init__(self, status: int, why: Rejection, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.why = why


class RejectionLog:
    """Counts, and writes a line for each kind with how many there were since the line before.

    Args:
        counts: What `/metrics` shows, by kind.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, counts: Counter[str], clock: Callable[[], int]) -> None:
        self._counts = counts
        self._lines = ThrottledLog(clock)
        self._log = structlog.get_logger()

    def count(self, why: Rejection, detail: str, caller: str) -> None:
        """Somebody at the address `caller` was refused."""
        self._counts[why.value] += 1
        times = self._lines.due(why.value)
        if times:
            self._log.warning("admin address: refused", kind=why.value, detail=detail, caller=caller, refused=times)
