"""The data path of a session: one `DataPath` for each direction, from the bytes read to the bytes written.

    chunk ─▶ scan ─▶ all fits ───────────────────────────────────────▶ written as it came          (fast path)
               └───▶ else cut:
                       entry ─▶ rate limiter ─▶ passes ──────────────▶ written                     (slow path)
                                  ├───▶ over a limit that refuses ──▶ its client gets an error
                                  └───▶ held; released later ────────▶ written
                       entry of no stream ─▶ goes nowhere
                       command ─▶ handler ───────────────────────────▶ written as it came, changed, or not at all
                       a pause begins ─▶ the rest is set aside ─ the pause ends ─▶ cut

A frame may come in parts. The decision on its first part applies to the others.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from limiter.limiter import Entry, Stream, refusal_of, rejecting
from limiter.permits import Permits
from limiter.scheduler import Scheduler
from protocol.commands import encode, read
from protocol.flow import MOST_PERMITS, flow_frame, read_flow
from protocol.frames import HEAD, MESSAGE, SEND, ProtocolError
from protocol.pulsar_pb2 import BaseCommand
from protocol.scanner import MOST_MESSAGES, TAIL, FrameScanner, Piece, Tally
from protocol.walk import read_command
from proxy.budgets import ENTRY_OVERHEAD, Budget, Claim, Share
from proxy.counters import Counters
from proxy.refusals import TooMuchUnfinishedError
from proxy.session.responses import Rejections
from proxy.session.transport import Bytes, PauseReason, PeerTransport, Receiver, SocketWriter, Throttled
from proxy.slices import Slices, Work, units_of_command
from proxy.timers import LARGE_READ

CommandHandler = Callable[[int, bytes, bytes], bytes | None]
"""Maps (type, BaseCommand, whole frame) to the frame that is passed on: the same, another, or None."""

MOST_REPLIES = 100
"""Most replies that wait for the end of a broker's frame before the client is no longer read."""
_ANSWERS = frozenset({BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR})
_COPIED: Final = 4096
"""Most bytes of a chunk that is copied: to copy more costs more than a view."""
MOST_COMMANDS: Final = 16
"""Most commands of one read that are handled in a row: to open a stream takes as long as thousands of messages."""
_LIGHT: Final = frozenset({BaseCommand.ACK, BaseCommand.FLOW, BaseCommand.SEND_RECEIPT, BaseCommand.ACK_RESPONSE})
"""Commands that come as often as messages, and take no longer."""
_COMMANDS: Final = Work.COMMANDS
MOST_STREAMS: Final = 100
"""Most streams that a chunk on the fast path may name: a chunk with more is cut, so that reading may pause inside."""
FEW_STREAMS: Final = 8
"""Streams that one read may name in any case, however many those of all connections have named in this turn."""
_ENTRIES: Final = Work.ENTRIES
_COUNTED: Final = 4096
"""Bytes of an incomplete frame from which on its memory is counted: most chunks end with a few."""


class PendingPublishes:
    """Publishes of one connection that the broker has not answered (maxPendingPublishRequestsPerConnection).

    Passed and answered publishes are counted by producer: a producer that closes takes its unanswered ones with it.

    Reading is paused when exactly `most` whole entries are pending, and resumes at half of that. An entry counts when
    its last part has passed: the broker cannot answer half an entry, so a pause inside one would last for ever. In a
    chunk that passes uncut, the entry at its end counts at once: `has_room` has left it room to end. Held entries pass
    at their limit's pace during a pause as well, and count.

    Args:
        most: Most pending entries.
        on_pause: Called with True when reading must pause, and with False when it may resume.
    """

    def __init__(self, most: int, on_pause: Callable[[bool], None]) -> None:
        self._budget = Budget(most, on_pause)
        self._by_producer: dict[int, int] = {}
        self._under_way: int | None = None

    @property
    def count(self) -> int:
        """Number of pending entries."""
        return self._budget.used

    def has_room(self, tallies: list[Tally], *, ends_mid_frame: bool) -> bool:
        """Return whether a chunk may pass uncut: no pause is due in it, nor at its end if that is inside a frame."""
        more = sum(tally.entries for tally in tallies) + (self._under_way is not None)
        return self.count + more + ends_mid_frame <= self._budget.limit

    def passed_uncut(self, tallies: list[Tally]) -> None:
        """Count a chunk that had room and passed; an entry at its end that goes on in the next chunk counts already."""
        self.ended()
        for tally in tallies:
            self.passed(tally.owner, tally.entries)

    def passing(self, producer: int, *, whole: bool) -> None:
        """Count an entry that passed, or note its first part; `ended` will be called for that."""
        if whole:
            self.passed(producer, 1)
        else:
            self._under_way = producer

    def ended(self) -> None:
        """Record that the end of a frame passed, be it an entry or a command."""
        if self._under_way is not None:
            producer, self._under_way = self._under_way, None
            self.passed(producer, 1)

    def passed(self, producer: int, entries: int) -> None:
        """Count whole entries that passed."""
        self._by_producer[producer] = self._by_producer.get(producer, 0) + entries
        self._budget.take(entries)

    def answered(self, producer: int, entries: int) -> None:
        """Count answers; those to nothing pending, as of a producer that was closed, do not count."""
        pending = self._by_producer.get(producer, 0)
        entries = min(entries, pending)
        if entries == 0:
            return
        if entries == pending:
            del self._by_producer[producer]
        else:
            self._by_producer[producer] = pending - entries
        self._budget.give(entries)

    def answered_in_chunk(self, receipts: list[Tally]) -> None:
        """Count the receipts of a chunk that passed uncut."""
        for tally in receipts:
            self.answered(tally.owner, tally.entries)

    def closed(self, producer: int) -> None:
        """Forget the pending entries of a producer that is over: they have no answers, or need none."""
        if self._under_way == producer:
            self._under_way = None
        self.answered(producer, self._by_producer.get(producer, 0))

    def hear(self, kind: int, command: bytes) -> None:
        """Count a broker's command if it answers a publish, be it a receipt or an error."""
        if kind in _ANSWERS:
            _kind, producer, _sequence = read_command(command, 0, len(command), kind)
            self.answered(producer, 1)


class HeldMemory:
    """Memory of one direction's held entries, counted twice: for the connection, and for its tenant in the process.

    Args:
        own: The budget of this direction.
        share: The part of this direction in the process's budget.
        memory: The memory that may be kept for the client.
    """

    def __init__(self, own: Budget, share: Share, memory: Claim) -> None:
        self._own = own
        self._share = share
        self._memory = memory
        self._is_stuck = False
        self._unsent: dict[str, int] = {}

    @property
    def is_any(self) -> bool:
        """True while something is held."""
        return self._own.used > 0

    def take(self, tenant: str, memory: int) -> None:
        """Count more bytes as held for this tenant; may pause reading."""
        self._own.take(memory)
        self._share.take(tenant, memory)

    def keep_answers(self, tenant: str, more: int) -> None:
        """Count `more` bytes (negative: fewer) of errors that wait to be sent to this tenant's producers."""
        if more > 0:
            self._share.take(tenant, more)
        else:
            self._share.give(tenant, -more)

    def set_aside(self, more: int) -> None:
        """Count `more` bytes (negative: fewer) that wait for a pause to end."""
        self._share.set_aside(more)

    def keep_unfinished(self, more: int) -> None:
        """Count `more` bytes (negative: fewer) of a frame that is not complete, and cannot go on in parts.

        Beyond the bound the connection ends. Not to read on would not do: the frame would then never end.

        Raises:
            TooMuchUnfinishedError: If no more may be kept for this client.
        """
        if more > 0 and not self._memory.take(more):
            raise TooMuchUnfinishedError(
                "incomplete frames take all memory that may be kept for this client (client_memory)"
            )
        if more < 0:
            self._memory.add(more)
        self._share.set_aside(more)

    def give(self, tenant: str, memory: int) -> None:
        """Count bytes as no longer held; may end a pause, and so lead back here before it returns."""
        self._own.give(memory)
        self._share.give(tenant, memory)

    def sent(self, tenant: str, memory: int) -> None:
        """Count bytes that were held and are written now.

        If the peer takes nothing, they take up memory as before, and count for their tenant until it does.
        """
        self._own.give(memory)
        if self._is_stuck:
            self._unsent[tenant] = self._unsent.get(tenant, 0) + memory
        else:
            self._share.give(tenant, memory)

    def stuck(self, is_stuck: bool) -> None:  # noqa: FBT001 - the new state
        """Record that the peer takes no more bytes, or does again."""
        self._is_stuck = is_stuck
        if not is_stuck:
            unsent, self._unsent = self._unsent, {}
            for tenant, memory in unsent.items():
                self._share.give(tenant, memory)


class PartialEntry:
    """An incomplete entry that has to wait.

    Its parts are kept as one object: a client may write two bytes at a time, and an object for each part takes 60. They
    count as memory of the client and pause nothing: a client that is not read could never end the entry.

    Args:
        stream: The entry's stream.
        entry: The entry with its first part.
        memory: Counts the parts.
    """

    def __init__(self, stream: Stream, entry: Entry, memory: HeldMemory) -> None:
        self.stream = stream
        self.entry = entry
        self._memory = memory
        self._kept = bytearray(entry.frame)
        memory.keep_unfinished(len(self._kept))

    def add(self, part: bytes) -> None:
        """Append the next part.

        Raises:
            TooMuchUnfinishedError: If no more may be kept for this client.
        """
        self._memory.keep_unfinished(len(part))
        self._kept += part

    def end(self) -> Entry:
        """Return the entry with all parts that have come; no more are added."""
        self._memory.keep_unfinished(-len(self._kept))
        self.entry.frame = bytes(self._kept)
        return self.entry


class FrameWriter:
    """Writes frames to one peer: chunks passed on as they came, and whole frames between them, never inside others.

    Replies are the frames that the proxy itself sends to a client: answers to lookups, refusals, errors of blocks and
    of limits that reject. The broker's receipts are replies where such errors have their place among them. Reading of a
    client is paused while its replies cannot be sent: else it could make the proxy keep any number.

    Attributes:
        waiting: Whole frames that wait for the frame under way to end.

    Args:
        writer: The peer's writer.
        client: The client that replies are for; None for the broker, which gets none.
    """

    def __init__(self, writer: SocketWriter, client: PeerTransport | None = None) -> None:
        self.mid_frame = False
        self.waiting: list[bytes] = []
        self._writer = writer
        self._client = client
        self._is_taken = True

    def pass_on(self, chunk: Bytes, *, mid_frame: bool) -> None:
        """Write a part of the forwarded bytes, which ends inside a frame or at the end of one."""
        self._writer.write(chunk)
        self._passed(mid_frame=mid_frame)

    def pass_piece(self, piece: bytes, *, mid_frame: bool) -> None:
        """Write one of many pieces of a chunk; they leave together."""
        self._writer.write_soon(piece)
        self._passed(mid_frame=mid_frame)

    def insert(self, frame: bytes) -> None:
        """Write a whole frame, now or as soon as the frame under way ends."""
        if self.mid_frame:
            self.waiting.append(frame)
        else:
            self._writer.write_soon(frame)

    def reply(self, frame: bytes) -> None:
        """Send a reply; stop reading a client that takes none, or for which MOST_REPLIES frames wait."""
        self.insert(frame)
        if self._client is not None and (not self._is_taken or len(self.waiting) >= MOST_REPLIES):
            self._client.throttle(PauseReason.REPLIES)

    def writable(self, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """Record that the peer's write buffer is full, or has room again."""
        self._is_taken = is_writable
        self._look_at_replies()

    def _passed(self, *, mid_frame: bool) -> None:
        self.mid_frame = mid_frame
        if not mid_frame and self.waiting:
            self._write_waiting()

    def _write_waiting(self) -> None:
        frames, self.waiting = self.waiting, []
        for frame in frames:
            self._writer.write_soon(frame)
        self._look_at_replies()

    def _look_at_replies(self) -> None:
        if self._client is not None and self._is_taken and len(self.waiting) < MOST_REPLIES:
            self._client.unthrottle(PauseReason.REPLIES)


class DataPath(Receiver):
    """One direction of a session: meters, holds and forwards the frames of one peer.

    For its streams, a data path also grants permits to consumers.

    Attributes:
        streams: The streams whose entries pass here, by the peer's id.
        backlog: Bytes that were read and wait for a pause to end.
        rejections: Answers producers whose messages a limit refuses; None towards the client.

    Args:
        payload_kind: SEND (client to broker) or MESSAGE (broker to client).
        max_frame: Most bytes of a frame.
        source: The connection that is read, and paused.
        writer: Writes to the other peer.
        memory: Counts the held memory.
        scheduler: Decides which entries pass.
        handle: Handles each command.
        counters: Count entries of no stream.
        clock: Monotonic nanoseconds.
        rejections: As the attribute.
        publishes: Counts publishes and receipts; None: there is no bound on pending ones.
        most_messages: Most messages that an entry may declare. A publish that declares more is an error; a delivery
            counts as this many.
        oversized: Called with the number of messages that such a delivery declares.
        slices: Bounds and measures the commands that all connections together have handled in one turn of the loop;
            None: there is no such bound.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what its Args say
        self,
        payload_kind: int,
        max_frame: int,
        source: Throttled,
        writer: FrameWriter,
        memory: HeldMemory,
        scheduler: Scheduler,
        handle: CommandHandler,
        counters: Counters,
        clock: Callable[[], int],
        *,
        rejections: Rejections | None = None,
        publishes: PendingPublishes | None = None,
        most_messages: int = 0,
        oversized: Callable[[int], None] | None = None,
        slices: Slices | None = None,
    ) -> None:
        super().__init__()
        self.streams: dict[int, Stream] = {}
        on_excess: Callable[[int, int], None] | None = None
        if oversized is not None:  # it refers to the streams and not to this object, which would be a reference cycle
            on_excess = partial(_overdraw, self.streams, most_messages, oversized)
        counts_receipts = publishes is not None and payload_kind == MESSAGE
        most = most_messages if most_messages > 0 else MOST_MESSAGES
        self.scanner = FrameScanner(payload_kind, max_frame, most, on_excess, counts_receipts=counts_receipts)
        self.writer = writer
        self.memory = memory
        self.rejections = rejections
        self.backlog = b""
        self.is_over = False
        self._source = source
        self._scheduler = scheduler
        self._handle = handle
        self._slices = slices
        self._counters = counters
        self._clock = clock
        self._payload_kind = payload_kind
        self._light = _LIGHT | {TAIL, payload_kind}
        self._sent = publishes if payload_kind == SEND else None
        self._receipts = publishes if payload_kind == MESSAGE else None
        self._kept = 0
        self._partial: PartialEntry | None = None
        self._is_skipping = False
        self._begun = 0
        """Entries that were their streams' first of an interval, since their streams were last counted."""
        self._slow_reads = slices.slow_reads if slices is not None else None
        self._has_refused = False
        """Whether an entry of this read was refused, which takes as long as 30 that are held."""

    def feed(self, data: bytes, size: int) -> None:
        """Take the bytes read: the first `size` bytes of `data`. The memory may change after the call.

        Raises:
            ProtocolError: If the peer broke the protocol; nothing more can be fed.
        """
        now = self._clock()
        scanner, sent = self.scanner, self._sent
        if self.backlog:  # reading is paused: these bytes come after those that were set aside
            self._set_aside(self.backlog + data[:size])
            self._count_kept(scanner.kept)
            return
        is_free_to_pass = self._partial is None and not self._is_skipping and not self.writer.waiting
        holds_entries = self.memory.is_any
        self.passes = (
            is_free_to_pass
            and not (holds_entries and self._begins_with_held(data, size))
            and scanner.scan(data, size, MOST_STREAMS)
            and not (holds_entries and scanner.ends_mid_frame)  # held entries could not leave before the frame's end
            and (sent is None or sent.has_room(scanner.tallies, ends_mid_frame=scanner.ends_mid_frame))
            and self._admit(scanner.tallies, now)
        )
        if self.passes:
            scanner.accept(data)
            self._forward(data, size)
            if sent is not None:
                sent.passed_uncut(scanner.tallies)
            if self._receipts is not None:
                self._receipts.answered_in_chunk(scanner.receipts)
        else:
            self._feed_cut(data, size, now)
        self._count_kept(scanner.kept)

    def resume(self) -> None:
        """Process the bytes that a pause left over."""
        chunk = self.backlog
        if chunk:
            self._set_aside(b"")
            self._feed_cut(chunk, len(chunk), self._clock(), has_turn=True)
            self._count_kept(self.scanner.kept)

    def writable(self, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """Record that the peer at the writing end takes no more bytes, or does again."""
        self.memory.stuck(not is_writable)
        self.writer.writable(is_writable)

    def limit_frames(self, most: int) -> None:
        """Set the most bytes of a frame; a longer one breaks the protocol."""
        self.scanner.heads.limit_frames(most)

    def stop(self) -> None:
        """End the path with its session, perhaps from within the handling of a command: nothing more is processed."""
        self.is_over = True
        self._set_aside(b"")
        self._count_kept(0)
        self.memory.stuck(False)

    def let_go(self) -> None:
        """Drop the command handler, which refers to this path, so that no reference cycle remains."""
        self._handle = _ignored

    def forget(self, stream: Stream) -> None:
        """Remove a stream that is over."""
        stream_id = stream.name.stream_id
        if self.streams.get(stream_id) is not stream:
            return
        del self.streams[stream_id]
        if self._sent is not None:
            self._sent.closed(stream_id)
        if self.rejections is not None:
            self.rejections.closed(stream)

    # ---- the fast path

    def _begins_with_held(self, data: bytes, size: int) -> bool:
        """Return whether the first frame shows that the chunk cannot pass whole: its stream holds entries."""
        stream = self.streams.get(self.scanner.first_owner(data, size))
        return stream is not None and bool(stream.held)

    def _admit(self, tallies: list[Tally], now: int) -> bool:
        """Charge the whole chunk, or nothing; return whether it was charged."""
        if len(tallies) <= FEW_STREAMS or self._slices is None:
            return self._admit_each(tallies, now)
        with self._slices.measure(_ENTRIES):
            is_admitted = self._admit_each(tallies, now)
        if is_admitted and not self._slices.take_own(_ENTRIES, len(tallies)):
            self._source.yield_turn()
        return is_admitted

    def _admit_each(self, tallies: list[Tally], now: int) -> bool:
        admitted: list[Stream] = []
        for tally in tallies:
            stream = self.streams.get(tally.owner)
            if (
                stream is None
                or not stream.is_accepted
                or not self._scheduler.admit(stream, _charged(stream, tally), tally.size, now)
            ):
                for position, charged in enumerate(admitted):
                    self._scheduler.withdraw(charged, _charged(charged, tallies[position]), tallies[position].size)
                return False
            admitted.append(stream)
        delivered: list[tuple[Permits, Tally]] = []
        for position, stream in enumerate(admitted):
            tally = tallies[position]
            self._scheduler.count_admitted(
                stream,
                tally.entries,
                tally.messages,
                tally.size,
                tally.largest_messages,
                tally.largest_size,
            )
            if stream.permits is not None:
                delivered.append((stream.permits, tally))
        for permits, tally in delivered:  # when all are counted: this may change who is limited, and end streams
            permits.crossed(tally.entries, tally.messages, tally.size)
        return True

    def _forward(self, data: bytes, size: int) -> None:
        scanner = self.scanner
        if scanner.lead:
            self.writer.pass_on(scanner.lead, mid_frame=True)
        goes = size - scanner.keep
        if goes > 0:
            part = data[:goes] if goes <= _COPIED else memoryview(data)[:goes]
            self.writer.pass_on(part, mid_frame=scanner.mid_frame)

    # ---- the slow path

    @property
    def keeps_the_rest(self) -> bool:
        """True while the frame under way is kept or skipped: its rest must not be passed on."""
        return self._partial is not None or self._is_skipping

    @property
    def keeps_part(self) -> bool:
        """True while parts of an entry are kept that has not come whole."""
        return self._partial is not None

    def _feed_cut(self, chunk: bytes, size: int, now: int, *, has_turn: bool = False) -> None:
        """Cut a chunk into frames, and handle each.

        `has_turn`: commands of `MOST_COMMANDS` units, or one, are handled now, however much others have done.
        """
        timed = self._slow_reads if size < LARGE_READ else None  # of longer reads the transport takes the time
        began = timed.begin() if timed is not None else 0
        data, pieces = self.scanner.cut(chunk, size)
        self._has_refused = False
        if len(pieces) <= FEW_STREAMS or self._slices is None:
            self._take_pieces(data, pieces, now, has_turn=has_turn)
        else:
            with self._slices.measure(_ENTRIES):
                self._take_pieces(data, pieces, now, has_turn=has_turn)
        if timed is not None and (self._has_refused or len(pieces) > FEW_STREAMS):
            timed.end(began, size)

    def _take_pieces(self, data: bytes, pieces: list[Piece], now: int, *, has_turn: bool) -> None:
        end, commands, in_turn = self.scanner.end, 0, MOST_COMMANDS if has_turn else 0
        has_many = len(pieces) > FEW_STREAMS
        for piece in pieces:
            is_heavy = piece.kind not in self._light
            units = units_of_command(piece.stop - piece.start) if is_heavy else 0
            is_much = not has_turn and (has_many or self._has_refused)
            if self._waits_before(piece, units, is_much=is_much, has_turn=in_turn > 0):
                self._set_aside(data[piece.start : end])
                self.scanner.restart()
                return
            in_turn -= units
            self._take_piece(data, piece, now, is_last=piece.stop == end)
            commands += is_heavy
            if commands == MOST_COMMANDS and piece.stop < end:
                self._source.yield_turn()
            if self._begun >= FEW_STREAMS:
                self._begun = 0
                if self._slices is not None and not self._slices.take_own(_ENTRIES, FEW_STREAMS) and piece.stop < end:
                    self._source.yield_turn()
            if self._source.is_throttled() and not self.writer.mid_frame and not self.keeps_the_rest:
                self._set_aside(data[piece.stop : end])  # a pause begins at the next frame, be it read already
                self.scanner.restart()
                return
            if self.is_over:
                return
        if self.scanner.left:
            self._set_aside(data[end - self.scanner.left : end])
            self._source.yield_turn()

    def _offer(self, data: bytes, piece: Piece, now: int) -> None:
        """Pass, hold or refuse an entry.

        An entry of no stream, or of one that the broker has not accepted, is dropped. Nothing would meter it, or a
        client that was not let in would be charged, to the debt of others. Neither brokers nor clients do anything with
        such entries.
        """
        stream = self.streams.get(piece.owner)
        if stream is None or not stream.is_accepted:
            self._counters.entries_ignored += 1
            self._is_skipping = not piece.whole
            return
        if not stream.noted_in.is_open:
            self._begun += 1
        self._scheduler.count_offered(stream, 1, piece.messages, piece.size)
        may_pass = piece.whole or not self.memory.is_any
        if may_pass and self._scheduler.pass_entry(stream, piece.messages, piece.size, now):
            self._pass(stream, data, piece)
        elif stream.is_rejected and self._refuses(stream, data, piece, now):
            self._is_skipping = not piece.whole
        else:
            self._keep(stream, data, piece, now)

    def _continue_frame(self, part: bytes, *, whole: bool) -> None:
        """Handle the next part of the frame under way; `whole` with the last one."""
        if self._is_skipping:
            self._is_skipping = not whole
            return
        if self._partial is None:
            self.writer.pass_piece(part, mid_frame=not whole)
            if whole and self._sent is not None:
                self._sent.ended()
            return
        begun = self._partial
        begun.add(part)
        if whole:
            self._partial = None
            entry, now = begun.end(), self._clock()
            # No limit held the parts: the time between them is the client's own.
            entry.since = now
            self._hold(begun.stream, entry, now)

    def _take_piece(self, data: bytes, piece: Piece, now: int, *, is_last: bool) -> None:
        if piece.kind == TAIL:
            self._continue_frame(data[piece.start : piece.stop], whole=piece.whole)
        elif piece.kind == self._payload_kind:
            self._offer(data, piece, now)
        elif self._slices is None or piece.kind in _LIGHT:
            self._command(data, piece, is_last=is_last)
        else:
            with self._slices.measure(_COMMANDS):
                self._command(data, piece, is_last=is_last)

    def _waits_before(self, piece: Piece, units: int, *, is_much: bool, has_turn: bool) -> bool:
        """Return whether a piece waits for another turn.

        Args:
            piece: The next one of a read.
            units: Those of `COMMANDS` that it is.
            is_much: The read has many pieces, or one was refused: it gives way to others after slow reads.
            has_turn: A command goes on now.
        """
        if is_much and piece.kind != TAIL and self._slow_reads is not None and self._slow_reads.is_over:
            self._source.yield_turn()
            return self._source.is_throttled()
        return units > 0 and self._yields_before_command(units, has_turn=has_turn)

    def _yields_before_command(self, units: int, *, has_turn: bool) -> bool:
        """Return whether a command waits for another turn: work of all kinds has used up this one.

        A connection whose turn has come handles it all the same, and so does one that cannot stop inside a frame.
        """
        if self._slices is None or self._slices.take(_COMMANDS, units) or has_turn:
            return False
        if self.writer.mid_frame or self.keeps_the_rest:
            return False
        self._source.yield_turn()
        return self._source.is_throttled()

    def _command(self, data: bytes, piece: Piece, *, is_last: bool) -> None:
        """Write the frame that the handler returns for a command; at once, if the command is the last thing read."""
        frame = data[piece.start : piece.stop]
        answer = self._handle(piece.kind, _command_of(data, piece), frame)
        if answer is None:
            return
        if is_last:
            self.writer.pass_on(answer, mid_frame=False)
        else:
            self.writer.pass_piece(answer, mid_frame=False)

    def _pass(self, stream: Stream, data: bytes, piece: Piece) -> None:
        if self.rejections is not None and stream.is_rejected:
            self.rejections.accepted(stream, _command_of(data, piece))
        self.writer.pass_piece(data[piece.start : piece.stop], mid_frame=not piece.whole)
        if self._sent is not None:
            self._sent.passing(piece.owner, whole=piece.whole)

    def _refuses(self, stream: Stream, data: bytes, piece: Piece, now: int) -> bool:
        """Refuse an entry that did not pass, if a limit rejects it; else note that it will be held and answered."""
        command, rejections = _command_of(data, piece), self.rejections
        if rejections is None:
            return False
        send = rejections.refusable(command) if rejections.is_ready_for(stream) else None
        limiter = rejecting(stream, now) if send is not None else None
        if send is None or limiter is None:
            rejections.accepted(stream, command)
            return False
        self._has_refused = True
        self._scheduler.count_rejected(stream, limiter, piece.messages, piece.size)
        rejections.refused(stream, refusal_of(limiter), send)
        return True

    def _keep(self, stream: Stream, data: bytes, piece: Piece, now: int) -> None:
        """Hold an entry, once its last part has come."""
        charged = stream.charged(1, piece.messages)
        entry = Entry(data[piece.start : piece.stop], piece.messages, piece.size, 0, now, charged=charged)
        if piece.whole:
            self._hold(stream, entry, now)
        else:
            try:
                self._partial = PartialEntry(stream, entry, self.memory)
            except ProtocolError:
                self._scheduler.count_dropped(stream, entry.messages, entry.size)
                raise

    # ---- held entries

    def holds_any(self) -> bool:
        """Return whether something is held here.

        Then no frame may go out in parts. While its rest is missing, released entries could not leave; they would leave
        at once with the rest, against the limit.
        """
        return self.memory.is_any

    def hold_behind(self, stream: Stream, frame: bytes) -> None:
        """Hold a command for a stream until the entries that the stream holds have passed."""
        now = self._clock()
        self._hold(stream, Entry(frame, 0, 0, 0, now), now)

    def release(self, stream: Stream, entry: Entry) -> None:
        """Write a held entry that may pass.

        This may end a pause and so lead back into `resume`, and from there to the limits, before it returns. So nothing
        here relies on the state before.
        """
        self.writer.insert(entry.frame)
        if self._sent is not None and not entry.is_free:
            self._sent.passed(stream.name.stream_id, 1)
        self.memory.sent(stream.name.tenant, entry.memory)

    def give_back(self, stream: Stream, dropped: list[Entry]) -> None:
        """Free the memory of entries that are no longer held and will not pass; commands among them go on."""
        for entry in dropped:
            if entry.is_free:
                self.writer.insert(entry.frame)
        if dropped:
            self.memory.give(stream.name.tenant, sum([entry.memory for entry in dropped]))

    def abandon(self) -> None:
        """Drop the kept parts of a frame, and skip its rest: its stream is over."""
        if self._partial is not None:
            stream, entry = self._partial.stream, self._partial.end()
            self._partial = None
            self._is_skipping = True
            self._scheduler.count_dropped(stream, entry.messages, entry.size)

    def _hold(self, stream: Stream, entry: Entry, now: int) -> None:
        if not stream.is_open:
            self._scheduler.count_dropped(stream, entry.messages, entry.size)
            return
        entry.memory = ENTRY_OVERHEAD + len(entry.frame)
        self.memory.take(stream.name.tenant, entry.memory)
        self._scheduler.hold(stream, entry, now)

    # ---- FLOW: the permits that a client gives its consumers, and those that are passed on to the broker

    def ask(self, command: bytes, frame: bytes) -> bytes | None:
        """Handle a client's FLOW for a consumer in this path; return the frame for the broker, or None."""
        consumer_id, permits = read_flow(command)
        if consumer_id >= 0:
            return frame if self._asks(consumer_id, permits) else None
        flow = read(command)
        return encode(flow) if self._asks(flow.consumer_id, flow.message_permits) else None

    def grant(self, consumer_id: int, permits: int) -> None:
        """Grant a consumer `permits` more, above 0: send FLOWs to the broker, to which this path leads."""
        while permits > 0:
            portion = min(permits, MOST_PERMITS)
            self.writer.insert(flow_frame(consumer_id, portion))
            permits -= portion

    def _asks(self, consumer_id: int, permits: int) -> bool:
        """Count the permits of a FLOW; return whether it goes on as it came, else others may go on for it.

        Brokers close the whole connection for a FLOW of 0, which is dropped, and for one above MOST_PERMITS, which is
        split. A FLOW of a consumer that the broker has not accepted is dropped, as brokers ignore it, and so is one of
        a consumer that is closing: its entries would not be passed on.
        """
        stream = self.streams.get(consumer_id)
        if permits == 0 or stream is None or stream.permits is None or not stream.is_accepted:
            return False
        return stream.permits.ask(permits, as_it_came=permits <= MOST_PERMITS)

    # ---- memory

    def _count_kept(self, kept: int) -> None:
        """Count the bytes of an incomplete frame that the scanner keeps."""
        counted = kept if kept >= _COUNTED and not self.is_over else 0
        if counted != self._kept:
            self.memory.keep_unfinished(counted - self._kept)
            self._kept = counted

    def _set_aside(self, rest: bytes) -> None:
        self.memory.set_aside(len(rest) - len(self.backlog))
        self.backlog = rest


def _charged(stream: Stream, tally: Tally) -> int:
    return stream.charged(tally.entries, tally.messages)


def _command_of(data: bytes, piece: Piece) -> bytes:
    return data[piece.start + HEAD : piece.command_end]


def _overdraw(
    streams: dict[int, Stream], most: int, oversized: Callable[[int], None], consumer_id: int, messages: int
) -> None:
    """Handle a delivery that declares more messages than an entry may hold, and counts as `most`.

    Otherwise one SEND of one message, whose metadata says two billion, would put dispatch limits in debt for weeks. The
    broker takes as many permits as the metadata says.
    """
    oversized(messages)
    stream = streams.get(consumer_id)
    if stream is not None and stream.permits is not None:
        stream.permits.overdraw(messages - most)


def _ignored(_kind: int, _command: bytes, _frame: bytes) -> bytes | None:
    return None
