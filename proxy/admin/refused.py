"""What the admin address refuses: counted for /metrics, and told to the operator once in a while."""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum

import structlog

INTERVAL_NS = 10_000_000_000
"""Between two lines about one kind: whoever tries tokens must not fill the log."""


class Why(StrEnum):
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

    def __init__(self, status: int, why: Why, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.why = why


class Refused:
    """Counts, and writes a line for each kind with how many there were since the line before.

    Args:
        counts: What `/metrics` shows, by kind.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, counts: Counter[str], clock: Callable[[], int]) -> None:
        self._counts = counts
        self._clock = clock
        self._told_at: dict[Why, int] = {}
        self._since: Counter[Why] = Counter()
        self._log = structlog.get_logger()

    def count(self, why: Why, detail: str, caller: str) -> None:
        """Somebody at the address `caller` was refused."""
        self._counts[why.value] += 1
        self._since[why] += 1
        now, told_at = self._clock(), self._told_at.get(why)
        if told_at is not None and now - told_at < INTERVAL_NS:
            return
        self._told_at[why] = now
        self._log.warning(
            "admin address: refused", kind=why.value, detail=detail, caller=caller, refused=self._since.pop(why)
        )
