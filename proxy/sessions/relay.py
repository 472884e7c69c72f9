"""One direction of one session: chunks in, what the gate lets pass out.

chunk ─▶ scan ─▶ all fits ─────────────────────▶ written as it came          (the fast way)
           └───▶ else cut: entries and commands, one after another           (the exact way: `exact_way.py`)
                           └─ a pause begins ─▶ the rest is set aside ─ the pause ends ─▶ cut
"""

from collections.abc import Callable
from typing import Final

from limiter.passage import Passage
from limiter.permits import Permits
from limiter.stream import Stream
from protocol.pieces import TAIL, Tally
from protocol.scanner import FrameScanner
from proxy.observe.counters import Counters
from proxy.sessions.exact_way import ExactWay
from proxy.sessions.holdings import Holdings
from proxy.sessions.outlet import Outlet
from proxy.sessions.pending import CommandHandler, PendingPublishes
from proxy.sessions.throttle import Throttled

_COPIED: Final = 4096
"""Bytes of which a copy costs less than a view."""
_STRANGERS: Final = 16
"""Ids of no stream for which tallies are kept: what has more of them is cut."""
_COUNTED: Final = 4096
"""Bytes of a command's beginning from which on they are counted: each chunk ends in some."""


class Relay:
    """Meters and forwards what one peer sends.

    Attributes:
        exact: Takes the frames of chunks that do not pass whole, and holds what must wait.
        backlog: What was read and waits for a pause to end.
        passes: Whether what was fed last went on at once, as it came.
        answers: Told of the receipts that pass in a chunk, if they are counted; others go by the handler.
        yield_turn: Called where more is left over than one turn may take.

    Args:
        payload_kind: SEND (client to broker) or MESSAGE (broker to client).
        max_frame: Most bytes of a frame.
        outlet: Where it goes.
        gate: What decides.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self, payload_kind: int, max_frame: int, outlet: Outlet, gate: Passage, clock: Callable[[], int]
    ) -> None:
        self.streams: dict[int, Stream] = {}
        self.scanner = FrameScanner(payload_kind, max_frame)
        self.exact = ExactWay(self.streams, outlet, gate, clock)
        self.outlet = outlet
        self.backlog = b""
        self.is_over = False
        self.passes = False
        self.answers: PendingPublishes | None = None
        self.yield_turn: Callable[[], None] = lambda: None
        self._gate = gate
        self._clock = clock
        self._payload_kind = payload_kind
        self._kept = 0
        self._reading: Throttled
        self._holdings: Holdings

    def connect(self, handler: CommandHandler, reading: Throttled, holdings: Holdings, counters: Counters) -> None:
        """Set who handles commands, what reading is paused by, who counts what is held, and who all else."""
        self.exact.connect(handler, holdings, counters)
        self._reading = reading
        self._holdings = holdings

    def feed(self, data: bytes, size: int) -> None:
        """Take what was read: the first `size` bytes of `data`, which may be other ones afterwards.

        Raises:
            ProtocolError: If the peer broke the protocol; nothing more can be fed.
        """
        now = self._clock()
        scanner, exact = self.scanner, self.exact
        sent = exact.sent
        scanner.most_owners = len(self.streams) + _STRANGERS
        if self.backlog:
            self._set_aside(self.backlog + data[:size])
        elif (
            not exact.keeps_the_rest
            and not self.outlet.waiting
            and not (exact.holds_any() and self._begins_with_held(data, size))
            and scanner.scan(data, size)
            and not (scanner.ends_mid_frame and exact.holds_any())
            and (sent is None or sent.has_room(scanner.tallies, ends_mid_frame=scanner.ends_mid_frame))
            and self._admit(scanner.tallies, now)
        ):
            scanner.accept(data)
            self._forward(data, size)
            self.passes = True
            if sent is not None:
                sent.passed_uncut(scanner.tallies)
            if self.answers is not None:
                self.answers.answered_in_chunk(scanner.receipts)
        else:
            self.passes = False
            self._feed_exactly(data, size, now)
        self._count_kept(scanner.kept)

    def resume(self) -> None:
        """Go on with what a pause left over."""
        chunk = self.backlog
        if chunk:
            self._set_aside(b"")
            self._feed_exactly(chunk, len(chunk), self._clock())
            self._count_kept(self.scanner.kept)

    def writable(self, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """Whoever gets what passes takes no more, or does again."""
        self._holdings.stuck(not is_writable)

    def stop(self) -> None:
        """The session has ended, perhaps because of a command that is being handled: nothing more is."""
        self.is_over = True
        self._set_aside(b"")
        self._count_kept(0)
        self.writable(True)

    def forget(self, stream: Stream) -> None:
        """A stream is over."""
        del self.streams[stream.name.stream_id]
        if self.exact.sent is not None:
            self.exact.sent.closed(stream.name.stream_id)

    # ---- the fast way

    def _begins_with_held(self, data: bytes, size: int) -> bool:
        """Whether it cannot pass whole, which its first frame says: the others need not be looked at for that."""
        stream = self.streams.get(self.scanner.first_owner(data, size))
        return stream is not None and bool(stream.held)

    def _admit(self, tallies: list[Tally], now: int) -> bool:
        """Charge the whole chunk, or nothing."""
        admitted: list[Stream] = []
        for tally in tallies:
            stream = self.streams.get(tally.owner)
            if (
                stream is None
                or not stream.is_accepted
                or not self._gate.admit(stream, _charged(stream, tally), tally.size, now)
            ):
                for position, one in enumerate(admitted):
                    self._gate.withdraw(one, _charged(one, tallies[position]), tallies[position].size)
                return False
            admitted.append(stream)
        delivered: list[tuple[Permits, Tally]] = []
        for position, stream in enumerate(admitted):
            tally = tallies[position]
            self._gate.count_admitted(
                stream,
                (tally.entries, tally.messages, tally.size),
                (tally.largest_messages, tally.largest_size),
            )
            if stream.permits is not None:
                delivered.append((stream.permits, tally))
        for permits, tally in delivered:  # when all are counted: this may change who is limited, and end streams
            permits.crossed(tally.entries, tally.messages, tally.size)
        return True

    def _forward(self, data: bytes, size: int) -> None:
        scanner = self.scanner
        if scanner.lead:
            self.outlet.pass_on(scanner.lead, mid_frame=True)
        goes = size - scanner.keep
        if goes > 0:
            part = data[:goes] if goes <= _COPIED else memoryview(data)[:goes]
            self.outlet.pass_on(part, mid_frame=scanner.mid_frame)

    # ---- the exact way

    def _feed_exactly(self, chunk: bytes, size: int, now: int) -> None:
        exact = self.exact
        data, pieces = self.scanner.cut(chunk, size)
        end = self.scanner.end
        for piece in pieces:
            if piece.kind == TAIL:
                exact.go_on(data[piece.start : piece.stop], whole=piece.whole)
            elif piece.kind == self._payload_kind:
                exact.offer(data, piece, now)
            else:
                exact.command(data, piece, is_last=piece.stop == end)
            if self._reading.is_throttled() and not self.outlet.mid_frame and not exact.keeps_the_rest:
                self._set_aside(data[piece.stop : end])  # a pause begins at the next frame, be it read already
                self.scanner.restart()
                return
            if self.is_over:
                return
        if self.scanner.left:
            self._set_aside(data[end - self.scanner.left : end])
            self.yield_turn()

    def _count_kept(self, kept: int) -> None:
        """So many bytes of a frame that cannot be judged yet are kept back."""
        counted = kept if kept >= _COUNTED and not self.is_over else 0
        if counted != self._kept:
            self._holdings.keep_unfinished(counted - self._kept)
            self._kept = counted

    def _set_aside(self, rest: bytes) -> None:
        self._holdings.set_aside(len(rest) - len(self.backlog))
        self.backlog = rest


def _charged(stream: Stream, tally: Tally) -> int:
    return stream.charged(tally.entries, tally.messages)
