"""The journal of streams and limiters with news since the last lines of the access log: its cost follows activity."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from limiter.limiter import NOT_NOTED, Limiter, NotingPeriod, Stream

MOST_ENDED: Final = 1000
"""Most ended streams that wait to be reported: clients may open and close any number of streams in an interval."""


class ActivityNotes(Protocol):
    """Receives notes of the actions of streams and limiters."""

    def note(self, stream: "Stream") -> None:
        """Note that counts of `stream`, and of its limiters, are about to change."""

    def touched(self, limiter: "Limiter") -> None:
        """Note that counts of a limiter are about to change, perhaps for no stream."""

    def ended(self, stream: "Stream") -> None:
        """Note that a stream has ended."""

    def rewired(self, stream: "Stream", now: int) -> None:
        """Note that the stream is about to get other limits, as policies changed."""

    def retuned(self, limiter: "Limiter", now: int) -> None:
        """Note that a limiter is about to get another value."""

    def left(self, limiter: "Limiter", now: int) -> None:
        """Note that the last stream of a limiter has left it, as policies changed."""

    def forgotten(self, limiter: "Limiter") -> None:
        """Note that a limiter is no longer used."""


def _ignore() -> None:
    """Do nothing: there is no reader."""


def _ignore_subject(_subject: "Stream | Limiter") -> None:
    """Do nothing: there is no reader."""


def _ignore_cut(_subject: "Stream | Limiter", _now: int) -> None:
    """Do nothing: there is no reader."""


def ignore_standstill(_late_ns: int) -> None:
    """Do nothing about a standstill: no report has it."""


class ActivityReader(NamedTuple):
    """The callbacks of the reader of a journal; by default there is no reader.

    Args:
        on_first: Called when the journal is no longer empty; the caller then ends the period in its own time.
        on_early: Called with a stream that has ended, or a limiter that is forgotten, and is reported before that time.
        on_cut: Called with a stream or limiter and the moment from which it has other values, whether or not it is in
            the journal. Its report ends there, and a new one may follow.
        on_take: Called with a stream or limiter whose counts are about to change, while `ActivityJournal.is_taking`.
        on_relative: Called when the first limit that is relative to a publish rate appears: these change once a second.
        on_standstill: Called with a time in nanoseconds for which the process did nothing.
    """

    on_first: Callable[[], None] = _ignore
    on_early: Callable[[Stream | Limiter], None] = _ignore_subject
    on_cut: Callable[[Stream | Limiter, int], None] = _ignore_cut
    on_take: Callable[[Stream | Limiter], None] = _ignore_subject
    on_relative: Callable[[], None] = _ignore
    on_standstill: Callable[[int], None] = ignore_standstill


NO_READER: Final = ActivityReader()


class ActivityJournal:
    """The streams and limiters that have something to report.

    Bound: all open streams, MOST_ENDED ended streams, and the limiters of both. Others are reported early.

    Attributes:
        reader: Gets the reports, from `read_by` on.
        is_taking: The reader has ended the reports of all, and takes their counts a few at a time. A count must not
            change before it is taken.
    """

    def __init__(self) -> None:
        self.reader = NO_READER
        self.is_taking = False
        self.streams: OrderedDict[Stream, None] = OrderedDict()
        self.limiters: OrderedDict[Limiter, None] = OrderedDict()
        self._period = NotingPeriod(is_open=True)
        self._ended = 0
        self._untaken = 0

    def read_by(self, reader: ActivityReader) -> None:
        """Let `reader` have the reports from now on."""
        self.reader = reader

    def relative_began(self) -> None:
        """Note that the first limit that is relative to a publish rate has appeared."""
        self.reader.on_relative()

    def stood_still(self, late_ns: int) -> None:
        """Note that the process did nothing for a time in nanoseconds."""
        self.reader.on_standstill(late_ns)

    def note(self, stream: "Stream") -> None:
        """Note that counts of `stream`, and of its limiters, are about to change."""
        if stream.noted_in.is_open:
            return
        if self.is_taking:
            self._take_with_limiters(stream)
        if stream not in self.streams:
            if not self.streams:
                self.reader.on_first()
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
            self.reader.on_take(limiter)

    def _take_with_limiters(self, stream: "Stream") -> None:
        on_take = self.reader.on_take
        on_take(stream)
        for limiter in stream.chain:
            on_take(limiter)
        if stream.observed is not None:
            for limiter in stream.observed.chain:
                on_take(limiter)

    def ended(self, stream: "Stream") -> None:
        """Note that a stream has ended; its report waits for the reader, unless MOST_ENDED others wait."""
        if stream not in self.streams:
            return
        self._ended += 1
        if self._ended > MOST_ENDED:
            self._ended -= 1
            del self.streams[stream]
            stream.noted_in = NOT_NOTED
            self.reader.on_early(stream)

    def rewired(self, stream: "Stream", now: int) -> None:
        """End the stream's report here: it is about to get other limits, as policies changed."""
        self.reader.on_cut(stream, now)

    def retuned(self, limiter: "Limiter", now: int) -> None:
        """End the limiter's report here: no report mixes two values. Those of its streams, maybe thousands, go on."""
        self.reader.on_cut(limiter, now)

    def left(self, limiter: "Limiter", now: int) -> None:
        """End the limiter's report here and remove it: its last stream has left, as policies changed."""
        self.reader.on_cut(limiter, now)
        self.limiters.pop(limiter, None)

    def forgotten(self, limiter: "Limiter") -> None:
        """Report at once a limiter that is no longer used."""
        if limiter in self.limiters:
            del self.limiters[limiter]
            self.reader.on_early(limiter)

    def end_period(self) -> tuple["OrderedDict[Stream, None]", "OrderedDict[Limiter, None]"]:
        """Return the streams and limiters with something to report, and begin another period without any.

        The cost does not depend on their number. The caller takes their counts, and calls `taken` for each.
        """
        streams, self.streams = self.streams, OrderedDict()
        limiters, self.limiters = self.limiters, OrderedDict()
        self._ended = 0
        self._untaken = len(streams) + len(limiters)
        self.is_taking = self._untaken > 0
        self._period.is_open = False
        self._period = NotingPeriod(is_open=True)
        return streams, limiters

    def taken(self, subject: "Stream | Limiter") -> None:
        """Note that the counts of a period have been taken; waiting streams also have something to report in the next.

        That does not call `on_first`, as the caller also ends the next period.
        """
        self._untaken -= 1
        self.is_taking = self._untaken > 0
        if isinstance(subject, Limiter):
            if subject.waiters:
                self.limiters[subject] = None
        elif subject.holds:
            self.streams[subject] = None
