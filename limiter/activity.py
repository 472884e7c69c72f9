"""Collect the streams and limiters that did something since the access log last looked: its cost follows activity."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from limiter.limiter import NOT_NOTED, Limiter, NotingPeriod, Stream

MOST_ENDED: Final = 1000
"""Most ended streams that wait to be reported. Clients that open and close streams as fast as they can would fill an
interval with any number of them."""


class ActivityNotes(Protocol):
    """Receives notes of what streams and limiters do."""

    def note(self, stream: "Stream") -> None:
        """Note that `stream`, and with it its limiters, is about to do something: no count has changed yet."""

    def touched(self, limiter: "Limiter") -> None:
        """Note that counts of a limiter are about to change, perhaps for no stream."""

    def ended(self, stream: "Stream") -> None:
        """Note that a stream has ended."""

    def rewired(self, stream: "Stream", now: int) -> None:
        """Note that policies changed: the stream is about to get other limits."""

    def retuned(self, limiter: "Limiter", now: int) -> None:
        """Note that a limiter is about to get another value."""

    def left(self, limiter: "Limiter", now: int) -> None:
        """Note that policies changed and the last stream of a limiter has left it."""

    def forgotten(self, limiter: "Limiter") -> None:
        """Note that a limiter is no longer used."""


def _nobody_wakes() -> None:
    """Wake nobody: there is no reader."""


def _nobody_reads(_one: "Stream | Limiter") -> None:
    """Discard a report: there is no reader."""


def _nobody_cuts(_one: "Stream | Limiter", _now: int) -> None:
    """Ignore the end of a report: there is no reader."""


class ActivityReader(NamedTuple):
    """The calls by which the reader of an activity set learns of news; by default there is no reader.

    Args:
        woken: See `ActivitySet`.
        early: See `ActivitySet`.
        cut: See `ActivitySet`.
        take: See `ActivitySet`.
        follows: Called when a limit is relative to a publish rate while there was none: once a second these change.
    """

    woken: Callable[[], None] = _nobody_wakes
    early: Callable[[Stream | Limiter], None] = _nobody_reads
    cut: Callable[[Stream | Limiter, int], None] = _nobody_cuts
    take: Callable[[Stream | Limiter], None] = _nobody_reads
    follows: Callable[[], None] = _nobody_wakes


class ActivitySet:
    """The streams and limiters that have something to report.

    Bound: all open streams, MOST_ENDED ended streams, and the limiters of both. Others are reported early.

    Args:
        woken: Called when the set is no longer empty; the caller then ends the period in its own time.
        early: Called with a stream that has ended, or a limiter that is forgotten, and is reported before that time.
        cut: Called with a stream or limiter and the moment from which it has other values, whether or not it is in the
            set. Its report ends there, and a new one may follow.
        take: Called with a stream or limiter whose counts are about to change, while `is_taking`.

    Attributes:
        is_taking: The reader has ended the reports of all, and takes their counts a few at a time. A count must not
            change before it is taken.
    """

    def __init__(
        self,
        woken: Callable[[], None],
        early: Callable[[Stream | Limiter], None] = _nobody_reads,
        cut: Callable[[Stream | Limiter, int], None] = _nobody_cuts,
        take: Callable[[Stream | Limiter], None] = _nobody_reads,
    ) -> None:
        self.is_taking = False
        self._take: Callable[[Stream | Limiter], None] = take
        self.streams: OrderedDict[Stream, None] = OrderedDict()
        self.limiters: OrderedDict[Limiter, None] = OrderedDict()
        self.early: Callable[[Stream | Limiter], None] = early
        self.cut: Callable[[Stream | Limiter, int], None] = cut
        self._period = NotingPeriod(is_open=True)
        self._ended = 0
        self._woken = woken

    def note(self, stream: "Stream") -> None:
        """Note that `stream`, and with it its limiters, is about to do something."""
        if stream.noted_in.is_open:
            return
        if self.is_taking:
            self._take_with_limiters(stream)
        if stream not in self.streams:
            if not self.streams:
                self._woken()
            self.streams[stream] = None
        stream.noted_in = self._period
        for limiter in stream.chain:
            self.limiters[limiter] = None
        if stream.observed is not None:
            for limiter in stream.observed.chain:
                self.limiters[limiter] = None

    def touched(self, limiter: "Limiter") -> None:
        """Note that counts of a limiter are about to change."""
        if self.is_taking:
            self._take(limiter)

    def _take_with_limiters(self, stream: "Stream") -> None:
        self._take(stream)
        for limiter in stream.chain:
            self._take(limiter)
        if stream.observed is not None:
            for limiter in stream.observed.chain:
                self._take(limiter)

    def ended(self, stream: "Stream") -> None:
        """Note that a stream has ended; its report waits for the reader, unless MOST_ENDED others wait."""
        if stream not in self.streams:
            return
        self._ended += 1
        if self._ended > MOST_ENDED:
            self._ended -= 1
            del self.streams[stream]
            stream.noted_in = NOT_NOTED
            self.early(stream)

    def rewired(self, stream: "Stream", now: int) -> None:
        """End the stream's report here: policies changed, and it is about to get other limits."""
        self.cut(stream, now)

    def retuned(self, limiter: "Limiter", now: int) -> None:
        """End the limiter's report here: none mixes two values. Those of its streams, maybe thousands, go on."""
        self.cut(limiter, now)

    def left(self, limiter: "Limiter", now: int) -> None:
        """End the limiter's report here and remove it: policies changed, and its last stream has left."""
        self.cut(limiter, now)
        self.limiters.pop(limiter, None)

    def forgotten(self, limiter: "Limiter") -> None:
        """Report a limiter that is no longer used at once."""
        if limiter in self.limiters:
            del self.limiters[limiter]
            self.early(limiter)

    def end_period(self) -> tuple["OrderedDict[Stream, None]", "OrderedDict[Limiter, None]"]:
        """Return the streams and limiters with something to report, and begin another period without any.

        That costs the same, however many there are. The caller takes their counts, and calls `taken` for each.
        """
        streams, self.streams = self.streams, OrderedDict()
        limiters, self.limiters = self.limiters, OrderedDict()
        self._ended = 0
        self._period.is_open = False
        self._period = NotingPeriod(is_open=True)
        return streams, limiters

    def taken(self, one: "Stream | Limiter") -> None:
        """Note that the counts of a period have been taken; whatever waits has something to report in the next, too.

        That wakes nobody: the caller ends the next period, too.
        """
        if isinstance(one, Limiter):
            if one.waiters:
                self.limiters[one] = None
        elif one.holds:
            self.streams[one] = None
