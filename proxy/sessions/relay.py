"""One direction of one session: chunks in, what the gate lets pass out.

chunk ─▶ scan ─▶ all fits ───────────────────────────────▶ written as it came          (the fast way)
           └───▶ else cut: entry ─▶ gate ─▶ passes ──────▶ written
                                      └───▶ held; later released by the gate ─▶ written (the exact way)
                           command ─▶ handler ─▶ written as it came, changed, or not at all
"""

from collections.abc import Callable

from limiter.gate import Gate
from limiter.permits import Permits
from limiter.stream import Entry, Stream, StreamName
from limiter.turns import refusal_of, rejecting
from protocol.pieces import TAIL, Piece, Tally
from protocol.scanner import FrameScanner
from proxy.observe.counters import Counters
from proxy.sessions.collecting import Collecting
from proxy.sessions.holdings import ENTRY_OVERHEAD, Holdings
from proxy.sessions.outlet import Outlet
from proxy.sessions.pending import CommandHandler, PendingPublishes
from proxy.sessions.rejections import Rejections

_COPIED = 4096
"""Bytes of which a copy costs less than a view."""


class Relay:
    """Meters and forwards what one peer sends.

    Attributes:
        passes: Whether what was fed last went on at once, as it came.
        sent: Told of each publish that passes, if they are counted.
        answers: Told of the receipts that pass in a chunk, if they are counted; others go by the handler.

    Args:
        payload_kind: SEND (client to broker) or MESSAGE (broker to client).
        max_frame: Most bytes of a frame.
        outlet: Where it goes.
        gate: What decides.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, payload_kind: int, max_frame: int, outlet: Outlet, gate: Gate, clock: Callable[[], int]) -> None:
        self.streams: dict[int, Stream] = {}
        self.scanner = FrameScanner(payload_kind, max_frame)
        self.backlog = b""
        self.outlet = outlet
        self.is_over = False
        self.passes = False
        self.yield_turn: Callable[[], None] = lambda: None
        self.sent: PendingPublishes | None = None
        self.answers: PendingPublishes | None = None
        self._gate = gate
        self._clock = clock
        self._payload_kind = payload_kind
        self._collecting: Collecting | None = None
        self._is_skipping = False
        self._handle: CommandHandler = lambda _kind, _command, frame: frame
        self._is_paused: Callable[[], bool] = lambda: False
        self._holdings: Holdings
        self._counters: Counters
        self.rejections: Rejections

    def connect(
        self, handler: CommandHandler, is_paused: Callable[[], bool], holdings: Holdings, counters: Counters
    ) -> None:
        """Set who handles commands, who says that reading is paused, who counts what is held, and who all else."""
        self._counters = counters
        self._handle = handler
        self._is_paused = is_paused
        self._holdings = holdings

    def overhear(self, listen: Callable[[CommandHandler], CommandHandler]) -> None:
        """Put something before the handler, and around it."""
        self._handle = listen(self._handle)

    def feed(self, data: bytes, size: int) -> None:
        """Take what was read: the first `size` bytes of `data`, which may be other ones afterwards.

        Raises:
            ProtocolError: If the peer broke the protocol; nothing more can be fed.
        """
        now = self._clock()
        scanner = self.scanner
        if self.backlog:
            self._set_aside(self.backlog + data[:size])
        elif (
            self._collecting is None
            and not self._is_skipping
            and not self.outlet.waiting
            and scanner.scan(data, size)
            and not (scanner.ends_mid_frame and self.holds_any())
            and (self.sent is None or self.sent.has_room(scanner.tallies, ends_mid_frame=scanner.ends_mid_frame))
            and self._admit(scanner.tallies, now)
        ):
            scanner.accept(data)
            self._forward(data, size)
            self.passes = True
            if self.sent is not None:
                self.sent.passed_uncut(scanner.tallies)
            if self.answers is not None:
                self.answers.answered_in_chunk(scanner.receipts)
        else:
            self.passes = False
            self._feed_exactly(data, size, now)

    def resume(self) -> None:
        """Go on with what a pause left over."""
        chunk = self.backlog
        if chunk:
            self._set_aside(b"")
            self._feed_exactly(chunk, len(chunk), self._clock())

    def stop(self) -> None:
        """The session has ended, perhaps because of a command that is being handled: nothing more is."""
        self.is_over = True
        self._set_aside(b"")

    def forget(self, stream: Stream) -> None:
        """A stream is over."""
        del self.streams[stream.name.stream_id]
        if self.sent is not None:
            self.sent.closed(stream.name.stream_id)

    def release(self, name: StreamName, entry: Entry) -> None:
        """The gate lets a held entry of this stream pass.

        This may end a pause and so lead back into `resume`, and from there to the gate, before it returns; so
        nothing here relies on what was so before.
        """
        self.outlet.insert(entry.frame)
        if self.sent is not None and not entry.is_free:
            self.sent.passed(name.stream_id, 1)
        self._holdings.give(name.tenant, entry.memory)

    def give_back(self, stream: Stream, dropped: list[Entry]) -> None:
        """Entries of this stream are no longer held, and will not pass."""
        if dropped:
            self._holdings.give(stream.name.tenant, sum(entry.memory for entry in dropped))

    def hold_behind(self, stream: Stream, frame: bytes) -> None:
        """Let a command that refers to a held stream wait behind what is held."""
        self._hold(stream, Entry(frame, 0, 0, 0, self._clock()))

    def abandon(self) -> None:
        """Its streams are over; a frame that was still being collected goes nowhere, nor does the rest of it."""
        if self._collecting is not None:
            stream, entry = self._collecting.stream, self._collecting.end()
            self._collecting = None
            self._is_skipping = True
            self._gate.count_dropped(stream, entry.messages, entry.size)

    def holds_any(self) -> bool:
        """Whether something is held here.

        Then no frame may go out in parts: while its rest is missing, what the gate lets pass could not leave, and
        would leave at once with the rest, against the limit.
        """
        return self._holdings.is_any

    def _admit(self, tallies: list[Tally], now: int) -> bool:
        """Charge the whole chunk, or nothing."""
        for position, tally in enumerate(tallies):
            stream = self.streams.get(tally.owner)
            if (
                stream is None
                or not stream.is_accepted
                or not self._gate.admit(stream, _charged(stream, tally), tally.size, now)
            ):
                self._withdraw(tallies[:position])
                return False
        delivered: list[tuple[Permits, Tally]] = []
        for tally in tallies:
            stream = self.streams[tally.owner]
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

    def _withdraw(self, tallies: list[Tally]) -> None:
        for tally in tallies:
            stream = self.streams[tally.owner]
            self._gate.withdraw(stream, _charged(stream, tally), tally.size)

    def _forward(self, data: bytes, size: int) -> None:
        scanner = self.scanner
        if scanner.lead:
            self.outlet.pass_on(scanner.lead, mid_frame=True)
        goes = size - scanner.keep
        if goes > 0:
            part = data[:goes] if goes <= _COPIED else memoryview(data)[:goes]
            self.outlet.pass_on(part, mid_frame=scanner.mid_frame)

    def _feed_exactly(self, chunk: bytes, size: int, now: int) -> None:
        data, pieces = self.scanner.cut(chunk, size)
        end = self.scanner.end
        for piece in pieces:
            if piece.kind == TAIL:
                self._continue(data[piece.start : piece.stop], whole=piece.whole)
            elif piece.kind == self._payload_kind:
                self._offer(data, piece, now)
            else:
                self._command(data, piece)
            if self._is_paused() and not self.outlet.mid_frame and self._collecting is None and not self._is_skipping:
                self._set_aside(data[piece.stop : end])  # a pause begins at the next frame, be it read already
                self.scanner.restart()
                return
            if self.is_over:
                return
        if self.scanner.left:
            self._set_aside(data[end - self.scanner.left : end])
            self.yield_turn()

    def _set_aside(self, rest: bytes) -> None:
        self._holdings.set_aside(len(rest) - len(self.backlog))
        self.backlog = rest

    def _continue(self, part: bytes, *, whole: bool) -> None:
        if self._is_skipping:
            self._is_skipping = not whole
            return
        if self._collecting is None:
            self.outlet.pass_piece(part, mid_frame=not whole)
            if whole and self.sent is not None:
                self.sent.ended()
            return
        collecting = self._collecting
        collecting.add(part)
        if whole:
            self._collecting = None
            self._hold(collecting.stream, collecting.end())

    def _offer(self, data: bytes, piece: Piece, now: int) -> None:
        """Pass an entry, or hold or refuse it.

        One of no stream that the broker let in goes nowhere: nothing would meter it, or somebody who was not let in
        would be charged, to the debt of others; and neither brokers nor clients do anything with it.
        """
        stream = self.streams.get(piece.owner)
        if stream is None or not stream.is_accepted:
            self._counters.entries_ignored += 1
            self._is_skipping = not piece.whole
            return
        self._gate.count_offered(stream, 1, piece.messages, piece.size)
        may_pass = piece.whole or not self.holds_any()
        if may_pass and self._gate.pass_entry(stream, piece.messages, piece.size, now):
            if stream.is_rejected:
                self.rejections.accepted(stream, _command_of(data, piece))
            self.outlet.pass_piece(data[piece.start : piece.stop], mid_frame=not piece.whole)
            if self.sent is not None:
                self.sent.passing(piece.owner, whole=piece.whole)
        elif stream.is_rejected and self._refuses(stream, data, piece, now):
            self._is_skipping = not piece.whole
        else:
            charged = stream.charged(1, piece.messages)
            part = data[piece.start : piece.stop]
            entry = Entry(part, piece.messages, piece.size, 0, now, charged=charged)
            if piece.whole:
                self._hold(stream, entry)
            else:
                self._collecting = Collecting(stream, entry, self._holdings)

    def _refuses(self, stream: Stream, data: bytes, piece: Piece, now: int) -> bool:
        """Tell the client if a limit refuses an entry that did not pass; else it is held and will be answered."""
        limiter = rejecting(stream, now) if self.rejections.is_ready_for(stream) else None
        if limiter is None:
            self.rejections.accepted(stream, _command_of(data, piece))
            return False
        self._gate.count_rejected(stream, limiter, piece.messages, piece.size)
        self.rejections.refused(stream, refusal_of(limiter), _command_of(data, piece))
        return True

    def _hold(self, stream: Stream, entry: Entry) -> None:
        if not stream.is_open:
            self._gate.count_dropped(stream, entry.messages, entry.size)
            return
        entry.memory = ENTRY_OVERHEAD + len(entry.frame)
        self._holdings.take(stream.name.tenant, entry.memory)
        self._gate.hold(stream, entry, self._clock())

    def _command(self, data: bytes, piece: Piece) -> None:
        frame = data[piece.start : piece.stop]
        answer = self._handle(piece.kind, _command_of(data, piece), frame)
        if answer is not None:
            self.outlet.pass_piece(answer, mid_frame=not piece.whole)


def _charged(stream: Stream, tally: Tally) -> int:
    return stream.charged(tally.entries, tally.messages)


def _command_of(data: bytes, piece: Piece) -> bytes:
    return data[piece.start + 8 : piece.command_end]
