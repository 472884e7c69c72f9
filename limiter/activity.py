"""Which streams and limiters did something since the access log last looked: the log's cost follows activity."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from limiter.limiter import Limiter, Stream

MOST_ENDED: Final = 1000
"""Streams that are over and still have something to report. Clients that open and close streams as fast as they can
would fill an interval with any number of them."""


class ActivityNotes(Protocol):
    """What is told which streams did something."""

    def note(self, stream: "Stream") -> None:
        """`stream`, and with it its limiters, did something."""

    def ended(self, stream: "Stream") -> None:
        """A stream is over."""

    def rewired(self, stream: "Stream", now: int) -> None:
        """Policies changed: other limits are about to apply to a stream."""

    def retuned(self, limiter: "Limiter", now: int) -> None:
        """A limiter is about to have another value."""

    def left(self, limiter: "Limiter", now: int) -> None:
        """Policies changed: the last stream of a limiter has left it."""

    def forgotten(self, limiter: "Limiter") -> None:
        """A limiter is not used any more."""


def _nobody_wakes() -> None:
    """Without a reader nothing is reported."""


def _nobody_reads(_one: "Stream | Limiter") -> None:
    """The same."""


def _nobody_cuts(_one: "Stream | Limiter", _now: int) -> None:
    """The same."""


class ActivityReader(NamedTuple):
    """How whoever reports what streams and limiters did is told that there is something; by default nobody is.

    Args:
        woken: See `ActivitySet`.
        early: The same.
        cut: The same.
        follows: Called when a limit is relative to a publish rate while there was none: once a second these change.
    """

    woken: Callable[[], None] = _nobody_wakes
    early: Callable[[Stream | Limiter], None] = _nobody_reads
    cut: Callable[[Stream | Limiter, int], None] = _nobody_cuts
    follows: Callable[[], None] = _nobody_wakes


class ActivitySet:
    """The streams and limiters that have something to report.

    Bound: the streams that are open, MOST_ENDED others, and the limiters of both. Those beyond are reported early.

    Args:
        woken: Called when the first of them appears; the caller then reads and empties the journal in its own time.
        early: Called with a stream that is over, or a limiter that is forgotten, which does not wait for that time.
        cut: Called with a stream or limiter for which other values hold from a moment on, whether or not it is in the
            journal: what it has to report ends then, and more may come behind it.
    """

    def __init__(
        self,
        woken: Callable[[], None],
        early: Callable[[Stream | Limiter], None] = _nobody_reads,
        cut: Callable[[Stream | Limiter, int], None] = _nobody_cuts,
    ) -> None:
        self.streams: dict[Stream, None] = {}
        self.limiters: dict[Limiter, None] = {}
        self.early: Callable[[Stream | Limiter], None] = early
        self.cut: Callable[[Stream | Limiter, int], None] = cut
        self._ended = 0
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

    def ended(self, stream: "Stream") -> None:
        """A stream is over; what it has to report waits for the reader, unless many do."""
        if stream not in self.streams:
            return
        self._ended += 1
        if self._ended > MOST_ENDED:
            self._ended -= 1
            del self.streams[stream]
            stream.is_noted = False
            self.early(stream)

    def rewired(self, stream: "Stream", now: int) -> None:
        """Policies changed: what a stream reports of the limits that were its own ends here."""
        self.cut(stream, now)

    def retuned(self, limiter: "Limiter", now: int) -> None:
        """A limiter is about to have another value: no report mixes two, neither its own nor those of its streams."""
        self.cut(limiter, now)
        for stream in limiter.streams:
            if stream in self.streams:
                self.cut(stream, now)

    def left(self, limiter: "Limiter", now: int) -> None:
        """Policies changed, and the last stream of a limiter has left it: it reports nothing behind that."""
        self.cut(limiter, now)
        self.limiters.pop(limiter, None)

    def forgotten(self, limiter: "Limiter") -> None:
        """A limiter is not used any more: what it has to report does not wait."""
        if limiter in self.limiters:
            del self.limiters[limiter]
            self.early(limiter)

    def empty(self) -> tuple[list["Stream"], list["Limiter"]]:
        """Take out who has something to report; who still waits stays in, as waiting is something to report."""
        streams, limiters = list(self.streams), list(self.limiters)
        self._ended = 0
        for stream in streams:
            stream.is_noted = False
        self.streams = {stream: None for stream in streams if stream.holds}
        self.limiters = {limiter: None for limiter in limiters if limiter.waiters}
        return streams, limiters
