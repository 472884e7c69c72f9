"""The exact way of one direction: frame by frame, where a chunk did not pass whole.

    entry ─▶ gate ─▶ passes ────────────────────────────────▶ written
               ├───▶ over a limit that refuses ─▶ its client is told
               └───▶ held; later released by the gate ──────▶ written
    entry of nobody ─▶ goes nowhere
    command ─▶ handler ─────────────────────────────────────▶ written as it came, changed, or not at all

Frames come in parts. Whatever becomes of the first one, becomes of the others.
"""

from collections.abc import Callable

from limiter.passage import Passage
from limiter.stream import Entry, Stream
from limiter.turns import refusal_of, rejecting
from protocol.errors import ProtocolError
from protocol.kinds import HEAD
from protocol.pieces import Piece
from proxy.observe.counters import Counters
from proxy.sessions.collecting import Collecting
from proxy.sessions.holdings import ENTRY_OVERHEAD, Holdings
from proxy.sessions.outlet import Outlet
from proxy.sessions.pending import CommandHandler, PendingPublishes
from proxy.sessions.rejections import Rejections


class ExactWay:
    """Passes, holds or refuses each frame.

    Attributes:
        sent: Told of each publish that passes, if they are counted.
        handle: Takes each command.
        rejections: Answers the producers whose messages are refused.

    Args:
        streams: Whose entries pass, by the peer's number for them.
        outlet: Where they go.
        gate: What decides.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, streams: dict[int, Stream], outlet: Outlet, gate: Passage, clock: Callable[[], int]) -> None:
        self.sent: PendingPublishes | None = None
        self.handle: CommandHandler = lambda _kind, _command, frame: frame
        self.rejections: Rejections
        self._streams = streams
        self._outlet = outlet
        self._gate = gate
        self._clock = clock
        self._holdings: Holdings
        self._counters: Counters
        self._collecting: Collecting | None = None
        self._is_skipping = False

    def connect(self, handler: CommandHandler, holdings: Holdings, counters: Counters) -> None:
        """Set who handles commands, who counts what is held, and who all else."""
        self.handle = handler
        self._holdings = holdings
        self._counters = counters

    # ---- what comes

    @property
    def keeps_the_rest(self) -> bool:
        """Whether the frame under way does not go out: the rest of it must come here."""
        return self._collecting is not None or self._is_skipping

    def offer(self, data: bytes, piece: Piece, now: int) -> None:
        """Pass an entry, or hold or refuse it.

        One of no stream that the broker let in goes nowhere: nothing would meter it, or somebody who was not let in
        would be charged, to the debt of others; and neither brokers nor clients do anything with it.
        """
        stream = self._streams.get(piece.owner)
        if stream is None or not stream.is_accepted:
            self._counters.entries_ignored += 1
            self._is_skipping = not piece.whole
            return
        self._gate.count_offered(stream, 1, piece.messages, piece.size)
        may_pass = piece.whole or not self.holds_any()
        if may_pass and self._gate.pass_entry(stream, piece.messages, piece.size, now):
            self._pass(stream, data, piece)
        elif stream.is_rejected and self._refuses(stream, data, piece, now):
            self._is_skipping = not piece.whole
        else:
            self._keep(stream, data, piece, now)

    def go_on(self, part: bytes, *, whole: bool) -> None:
        """The next part of the frame under way; `whole` with the last one."""
        if self._is_skipping:
            self._is_skipping = not whole
            return
        if self._collecting is None:
            self._outlet.pass_piece(part, mid_frame=not whole)
            if whole and self.sent is not None:
                self.sent.ended()
            return
        collecting = self._collecting
        collecting.add(part)
        if whole:
            self._collecting = None
            self._hold(collecting.stream, collecting.end(), self._clock())

    def command(self, data: bytes, piece: Piece, *, is_last: bool) -> None:
        """Pass what the handler makes of a command; at once, if it is the last thing that was read."""
        frame = data[piece.start : piece.stop]
        answer = self.handle(piece.kind, _command_of(data, piece), frame)
        if answer is None:
            return
        if is_last:
            self._outlet.pass_on(answer, mid_frame=False)
        else:
            self._outlet.pass_piece(answer, mid_frame=False)

    def abandon(self) -> None:
        """Its streams are over; a frame that was still being collected goes nowhere, nor does the rest of it."""
        if self._collecting is not None:
            stream, entry = self._collecting.stream, self._collecting.end()
            self._collecting = None
            self._is_skipping = True
            self._gate.count_dropped(stream, entry.messages, entry.size)

    # ---- what is held

    def holds_any(self) -> bool:
        """Whether something is held here.

        Then no frame may go out in parts: while its rest is missing, what the gate lets pass could not leave, and
        would leave at once with the rest, against the limit.
        """
        return self._holdings.is_any

    def hold_behind(self, stream: Stream, frame: bytes) -> None:
        """Let a command that refers to a held stream wait behind what is held."""
        now = self._clock()
        self._hold(stream, Entry(frame, 0, 0, 0, now), now)

    def release(self, stream: Stream, entry: Entry) -> None:
        """The gate lets a held entry of this stream pass.

        This may end a pause and so lead back into `Relay.resume`, and from there to the gate, before it returns; so
        nothing here relies on what was so before.
        """
        self._outlet.insert(entry.frame)
        if self.sent is not None and not entry.is_free:
            self.sent.passed(stream.name.stream_id, 1)
        self._holdings.sent(stream.name.tenant, entry.memory)

    def give_back(self, stream: Stream, dropped: list[Entry]) -> None:
        """Entries of this stream are no longer held, and will not pass."""
        if dropped:
            self._holdings.give(stream.name.tenant, sum(entry.memory for entry in dropped))

    def _pass(self, stream: Stream, data: bytes, piece: Piece) -> None:
        if stream.is_rejected:
            self.rejections.accepted(stream, _command_of(data, piece))
        self._outlet.pass_piece(data[piece.start : piece.stop], mid_frame=not piece.whole)
        if self.sent is not None:
            self.sent.passing(piece.owner, whole=piece.whole)

    def _refuses(self, stream: Stream, data: bytes, piece: Piece, now: int) -> bool:
        """Tell the client if a limit refuses an entry that did not pass; else it is held and will be answered."""
        command, rejections, limiter = _command_of(data, piece), self.rejections, None
        if rejections.is_ready_for(stream) and rejections.may_refuse(command):
            limiter = rejecting(stream, now)
        if limiter is None:
            rejections.accepted(stream, command)
            return False
        self._gate.count_rejected(stream, limiter, piece.messages, piece.size)
        rejections.refused(stream, refusal_of(limiter), command)
        return True

    def _keep(self, stream: Stream, data: bytes, piece: Piece, now: int) -> None:
        """Hold an entry, once all of it has come."""
        charged = stream.charged(1, piece.messages)
        entry = Entry(data[piece.start : piece.stop], piece.messages, piece.size, 0, now, charged=charged)
        if piece.whole:
            self._hold(stream, entry, now)
        else:
            try:
                self._collecting = Collecting(stream, entry, self._holdings)
            except ProtocolError:
                self._gate.count_dropped(stream, entry.messages, entry.size)
                raise

    def _hold(self, stream: Stream, entry: Entry, now: int) -> None:
        if not stream.is_open:
            self._gate.count_dropped(stream, entry.messages, entry.size)
            return
        entry.memory = ENTRY_OVERHEAD + len(entry.frame)
        self._holdings.take(stream.name.tenant, entry.memory)
        self._gate.hold(stream, entry, now)


def _command_of(data: bytes, piece: Piece) -> bytes:
    return data[piece.start + HEAD : piece.command_end]
