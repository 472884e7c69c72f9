"""Who did something since the access log last looked: so that the log's cost follows activity, not configuration."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from limiter.limiter import Limiter
    from limiter.stream import Stream


class Notes(Protocol):
    """Where a gate notes who did something."""

    def note(self, stream: "Stream") -> None:
        """`stream`, and with it its limiters, did something."""


class Journal:
    """The streams and limiters that have something to report.

    Args:
        woken: Called when the first of them appears; the caller then reads and empties the journal in its own time.
    """

    def __init__(self, woken: Callable[[], None]) -> None:
        self.streams: dict[Stream, None] = {}
        self.limiters: dict[Limiter, None] = {}
        self._woken = woken

    def note(self, stream: "Stream") -> None:
        """`stream`, and with it its limiters, did something."""
        if stream.is_noted:
            return
        if stream not in self.streams:
            if not self.streams:
                self._woken()
            self.streams[stream] = None
        stream.is_noted = True
        for limiter in stream.chain:
            self.limiters[limiter] = None
        if stream.observed is not None:
            for limiter in stream.observed.chain:
                self.limiters[limiter] = None

    def empty(self) -> tuple[list["Stream"], list["Limiter"]]:
        """Take out who has something to report; who still waits stays in, as waiting is something to report."""
        streams, limiters = list(self.streams), list(self.limiters)
        for stream in streams:
            stream.is_noted = False
        self.streams = {stream: None for stream in streams if stream.holds}
        self.limiters = {limiter: None for limiter in limiters if limiter.waiters}
        return streams, limiters
