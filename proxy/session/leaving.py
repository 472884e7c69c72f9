"""The way of one client out of a process that drains: its streams end at the broker, then at the client.

    SETTLING ─ producers hold nothing, requests are answered ─▶ PRODUCERS ─ the broker has closed them ─▶
    CONSUMERS ─ the broker has closed them ─▶ GONE: the client's connection ends

A client whose stream is closed opens it again on the same connection, as long as that is there, and some do so at
once. So all streams of a connection leave together, and the connection with them.

SETTLING: producers that hold nothing for long are served as before. What a limit keeps back of one producer may take
most of the time that there is, and its neighbours on the connection are not to wait for it.

PRODUCERS: brokers answer the CLOSE of a producer after the receipts of all that it has published. What the client sends
after that is dropped without a receipt, and the client sends it again elsewhere.

CONSUMERS: questions about consumers are dropped from now on. They would get errors, and the client asks again where it
goes on. Its other requests are answered before the connection ends, and streams that it has opened meanwhile are closed
like the first ones: some clients take a request without an answer for an error. The connection ends while no request
about a transaction is open. The next request of a client that ends one transaction after the other is under way soon
after each answer, so the connection ends with an answer then. If all that takes long, further requests about
transactions are dropped: the client would end a transaction twice.

Source: closeProducer of org.apache.pulsar.broker.service.ServerCnx, `connectionClosed` of ConnectionHandler.java
"""

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Final, Protocol

from limiter.token_bucket import NANOS_PER_SECOND

REQUESTS_NS: Final = NANOS_PER_SECOND
"""Time for which open requests of a client are awaited. A producer that waits for exclusive access has one for ever."""
LATE_REQUESTS_NS: Final = REQUESTS_NS // 4
"""The same when time is short."""
PRODUCERS_NS: Final = 5 * NANOS_PER_SECOND
"""Time for which a broker's last receipts are awaited."""
LONG_NS: Final = 2 * NANOS_PER_SECOND
"""Time for which a producer's first held entry has waited at least, where its limit keeps it back for long. Nothing is
lost on such a producer that accepts no more: it gets receipts at its limit until its last held entry has passed."""
CONSUMERS_NS: Final = NANOS_PER_SECOND // 20
"""Time for which a broker's answers about consumers are awaited, for which their clients get no messages."""
COORDINATOR_NS: Final = NANOS_PER_SECOND // 10
"""Time after which requests about transactions are dropped."""
CALM_NS: Final = NANOS_PER_SECOND // 5
"""Time without a request for a stream after which a client has opened all that it opens together."""
PAUSE_NS: Final = NANOS_PER_SECOND // 20
"""Time after a request about a transaction in which the next one may be under way."""
MOST_ROUNDS: Final = 3
"""How often streams are closed that a client has opened since."""


class LeavingStage(Enum):
    """A step of the way out."""

    SETTLING = "settling"
    PRODUCERS = "producers"
    CONSUMERS = "consumers"
    GONE = "gone"


class LeavingStreams(Protocol):
    """The streams of a session, as `Leaving` sees them. Each step of an iterator handles one stream, or looks at some.

    `Streams` is the one of a session; tests have a model of it.
    """

    def stop_holding(self, until: int) -> Iterator[None]:
        """Drop what comes from now on of producers that hold entries, the first of which had come by then.

        Held entries pass as before.
        """

    def holds_stopped(self) -> bool:
        """Return whether a producer held entries whose further ones are dropped, when `stop_holding` looked last."""

    def holds_published(self) -> bool:
        """Return whether producers hold entries, or parts of one."""

    def awaits_answers(self) -> bool:
        """Return whether a request is without an answer."""

    def asked_at(self) -> int:
        """Return the time at which the client asked for a stream last."""

    def awaits_late_answers(self) -> bool:
        """Return whether a request is without an answer that has come since the first stream was vacated."""

    def has_newcomers(self) -> bool:
        """Return whether there are streams that have been opened since."""

    def vacate(self, direction: str, answered: Callable[[], None]) -> Iterator[None]:
        """Close the streams of a direction at the broker, and pass nothing more; `answered` is called after each."""

    def is_vacated(self) -> bool:
        """Return whether the broker has answered each of these CLOSEs."""

    def dismissals(self, direction: str) -> Iterator[bytes]:
        """Yield the CLOSE for the client of each vacated stream of a direction, and nothing after some others."""


class Leaving:
    """Takes one client out; `look` is called again until it is gone.

    Args:
        streams: The client's producers and consumers.
        in_slices: Does the steps of an iterator, perhaps in later turns of the loop, and calls a function then.
        clock: Monotonic nanoseconds.
        go: Sends the client its last frames, and ends the connection, in one turn of the loop.

    Attributes:
        stage: The present step.
    """

    __slots__ = (
        "_clock",
        "_go",
        "_has_stopped_long",
        "_in_slices",
        "_is_answered",
        "_is_at_work",
        "_is_late",
        "_rounds",
        "_since",
        "_streams",
        "_transaction_at",
        "stage",
    )

    def __init__(
        self,
        streams: LeavingStreams,
        in_slices: Callable[[Iterator[None], Callable[[], None]], None],
        clock: Callable[[], int],
        go: Callable[[bytes], None],
    ) -> None:
        self.stage = LeavingStage.SETTLING
        self._streams = streams
        self._in_slices = in_slices
        self._clock = clock
        self._go = go
        self._since = clock()
        self._is_at_work = False
        self._is_late = False
        self._rounds = 0
        self._transaction_at = -PAUSE_NS
        """The time of the last request about a transaction since the client began to leave."""
        self._is_answered = False
        self._has_stopped_long = False
        """Whether producers were looked at that have held an entry from the first look on."""

    def look(self, *, is_late: bool) -> None:
        """Go on as far as possible; `is_late`: held entries are not awaited any more."""
        self._is_late |= is_late
        while not self._is_at_work and self._may_go_on():
            self._go_on()

    def look_on(self) -> None:
        """Go on as far as possible, at a time between two looks."""
        self.look(is_late=False)
        self._is_answered = False

    def asks_coordinator(self) -> bool:
        """Note a request about a transaction; return whether it is passed on, as its answer will come in time."""
        is_late = self.stage is LeavingStage.CONSUMERS and self._clock() - self._since >= COORDINATOR_NS
        if is_late or self.stage is LeavingStage.GONE:
            return False
        self._transaction_at = self._clock()
        return True

    def answered(self) -> None:
        """Note that an answer about a transaction goes to the client; `look_on` follows."""
        self._is_answered = True

    @property
    def has_no_consumers(self) -> bool:
        """Whether consumers are being closed, or are closed, at the broker."""
        return self._rounds > 1 or self.stage is LeavingStage.CONSUMERS or self.stage is LeavingStage.GONE

    def _may_go_on(self) -> bool:
        """Return whether the next stage may begin."""
        streams, waited = self._streams, self._clock() - self._since
        if self.stage is LeavingStage.SETTLING:
            if streams.holds_published() and not self._is_late:
                # Those whose entries wait for long have been found by then, and once they are through the others'
                # short waits are all that is left.
                is_rest = self._has_stopped_long and not streams.holds_stopped()
                self._has_stopped_long = waited >= LONG_NS
                self._work(streams.stop_holding(self._clock() - (0 if is_rest else LONG_NS)), _nothing)
                return False
            is_calm = self._clock() - streams.asked_at() >= CALM_NS
            return waited >= self._requests_ns or (is_calm and not streams.awaits_answers())
        if self.stage is LeavingStage.PRODUCERS:
            return waited >= PRODUCERS_NS or streams.is_vacated()
        if self.stage is LeavingStage.CONSUMERS:
            is_between = not self._is_answered and self._clock() - self._transaction_at < PAUSE_NS
            is_asking = waited < self._requests_ns and (is_between or streams.awaits_late_answers())
            return not is_asking and (waited >= CONSUMERS_NS or streams.is_vacated())
        return False

    @property
    def _requests_ns(self) -> int:
        return LATE_REQUESTS_NS if self._is_late else REQUESTS_NS

    def _go_on(self) -> None:
        streams = self._streams
        is_again = self.stage is LeavingStage.CONSUMERS and self._rounds < MOST_ROUNDS and streams.has_newcomers()
        if self.stage is LeavingStage.SETTLING or is_again:
            self._rounds += 1
            self._enter(LeavingStage.PRODUCERS)
            self._work(streams.vacate("publish", self.look_on), self.look_on)
        elif self.stage is LeavingStage.PRODUCERS:
            self._enter(LeavingStage.CONSUMERS)
            self._work(streams.vacate("dispatch", self.look_on), self.look_on)
        else:
            self._enter(LeavingStage.GONE)
            closes: list[bytes] = []
            # Some clients open a stream again as soon as it is closed, and would do so on this connection.
            self._work(self._dismissing(closes), lambda: self._go(b"".join(closes)))

    def _dismissing(self, closes: list[bytes]) -> Iterator[None]:
        for direction in ("dispatch", "publish"):
            for close in self._streams.dismissals(direction):
                closes.append(close)
                yield

    def _enter(self, stage: LeavingStage) -> None:
        self.stage, self._since = stage, self._clock()

    def _work(self, units: Iterator[None], then: Callable[[], None]) -> None:
        self._is_at_work = True
        self._in_slices(units, partial(self._worked, then))

    def _worked(self, then: Callable[[], None]) -> None:
        self._is_at_work = False
        then()


def _nothing() -> None:
    """Wait for the next look."""
