"""The data path of a session: one `DataPath` for each direction, from what is read to what is written.

    chunk ─▶ scan ─▶ all fits ───────────────────────────────────────▶ written as it came          (fast path)
               └───▶ else cut:
                       entry ─▶ rate limiter ─▶ passes ──────────────▶ written                     (slow path)
                                  ├───▶ over a limit that refuses ──▶ its client is told
                                  └───▶ held; released later ────────▶ written
                       entry of no stream ─▶ goes nowhere
                       command ─▶ handler ───────────────────────────▶ written as it came, changed, or not at all
                       a pause begins ─▶ the rest is set aside ─ the pause ends ─▶ cut

Frames come in parts. Whatever becomes of the first one, becomes of the others.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from limiter.limiter import Entry, RateLimiter, Stream, refusal_of, rejecting
from limiter.permits import Permits
from protocol.commands import command_in, encode, read
from protocol.errors import ProtocolError
from protocol.flow import MOST_PERMITS, flow_frame, read_flow
from protocol.kinds import HEAD, MESSAGE, SEND
from protocol.pulsar_pb2 import BaseCommand
from protocol.scanner import TAIL, FrameScanner, Piece, Tally
from protocol.walk import read_command
from proxy.budgets import ENTRY_OVERHEAD, Budget, Claim, Share
from proxy.observe.counters import Counters
from proxy.refusals import TooMuchUnfinishedError
from proxy.session.responses import Rejections
from proxy.session.transport import Bytes, Cause, PeerTransport, Receiver, SocketWriter, Throttled

CommandHandler = Callable[[int, bytes, bytes], bytes | None]
"""(type, BaseCommand, whole frame) to the frame that goes on: the same, another, or None."""

MOST_REPLIES = 100
"""Answers of the proxy's own that wait for the end of a broker's frame which the broker does not end."""
_ANSWERS = frozenset({BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR})
_COPIED: Final = 4096
"""Bytes of which a copy costs less than a view."""
_STRANGERS: Final = 16
"""Ids of no stream for which tallies are kept: what has more of them is cut."""
_COUNTED: Final = 4096
"""Bytes of a command's beginning from which on they are counted: each chunk ends in some."""


class PendingPublishes:
    """Publishes of one connection that the broker has not answered (maxPendingPublishRequestsPerConnection).

    Counts what passes and what is answered, by producer: a closing producer takes what is never answered with it.

    Reading stops when `most` whole entries are pending, exactly, and goes on at half of it. An entry counts when all
    of it has passed: the broker cannot answer half of one, so to stop inside of it would be to stop for ever. Of a
    chunk that passes uncut the one at its end counts at once: `has_room` has left it room to end. What is held already
    passes at its limit's pace all the same, and counts.

    Args:
        most: Entries.
        turned: Called with True when reading is to stop, and with False when it may go on.
    """

    def __init__(self, most: int, turned: Callable[[bool], None]) -> None:
        self._budget = Budget(most, turned)
        self._by_producer: dict[int, int] = {}
        self._under_way: int | None = None

    @property
    def count(self) -> int:
        """How many are pending."""
        return self._budget.used

    def has_room(self, tallies: list[Tally], *, ends_mid_frame: bool) -> bool:
        """Whether a chunk may pass uncut: reading need not stop inside of it, nor at an end inside a frame."""
        more = sum(tally.entries for tally in tallies) + (self._under_way is not None)
        return self.count + more + ends_mid_frame <= self._budget.limit

    def passed_uncut(self, tallies: list[Tally]) -> None:
        """A chunk that has room passed; an entry at its end may go on in the next one, and counts already."""
        self.ended()
        for tally in tallies:
            self.passed(tally.owner, tally.entries)

    def passing(self, producer: int, *, whole: bool) -> None:
        """An entry passed, or the first part of one; for that `ended` will be told."""
        if whole:
            self.passed(producer, 1)
        else:
            self._under_way = producer

    def ended(self) -> None:
        """The end of a frame passed, be it of an entry or of anything."""
        if self._under_way is not None:
            producer, self._under_way = self._under_way, None
            self.passed(producer, 1)

    def passed(self, producer: int, entries: int) -> None:
        """So many whole entries passed."""
        self._by_producer[producer] = self._by_producer.get(producer, 0) + entries
        self._budget.take(entries)

    def answered(self, producer: int, entries: int) -> None:
        """So many were answered. Answers that nobody waits for, as of a producer that was closed, do not count."""
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
        """These receipts passed with a chunk that was not cut."""
        for tally in receipts:
            self.answered(tally.owner, tally.entries)

    def closed(self, producer: int) -> None:
        """The producer is over; what it has pending will not be answered, or need not be waited for."""
        if self._under_way == producer:
            self._under_way = None
        self.answered(producer, self._by_producer.get(producer, 0))

    def hear(self, kind: int, command: bytes) -> None:
        """A command of the broker's that came by itself; answers count, be they receipts or errors."""
        if kind in _ANSWERS:
            _kind, producer, _sequence = read_command(command, 0, len(command), kind)
            self.answered(producer, 1)


class HeldMemory:
    """What is held of one direction of a session, counted twice: for the connection, and for its tenant in the process.

    Args:
        own: This direction's budget.
        share: This direction's part of the process's budget.
        memory: What may be kept for the client.
    """

    def __init__(self, own: Budget, share: Share, memory: Claim) -> None:
        self._own = own
        self._share = share
        self._memory = memory
        self._is_stuck = False
        self._unsent: dict[str, int] = {}

    @property
    def is_any(self) -> bool:
        """Whether something is held."""
        return self._own.used > 0

    def take(self, tenant: str, memory: int) -> None:
        """So many bytes more are held of this tenant; may pause the reading."""
        self._own.take(memory)
        self._share.take(tenant, memory)

    def keep_answers(self, tenant: str, more: int) -> None:
        """So many bytes more (less: negative) of errors wait to be told to this tenant's producers."""
        if more > 0:
            self._share.take(tenant, more)
        else:
            self._share.give(tenant, -more)

    def set_aside(self, more: int) -> None:
        """So many bytes more (less: negative) wait for a pause to end."""
        self._share.set_aside(more)

    def keep_unfinished(self, more: int) -> None:
        """So many bytes more (less: negative) are of a frame that has not come whole, and cannot go on in parts.

        Not to read it on would not do: then it never ends. So the connection ends.

        Raises:
            TooMuchUnfinishedError: If no more may be kept for this client.
        """
        if more > 0 and not self._memory.take(more):
            raise TooMuchUnfinishedError("frames that have begun take as much as may be kept (client_memory)")
        if more < 0:
            self._memory.add(more)
        self._share.set_aside(more)

    def give(self, tenant: str, memory: int) -> None:
        """So many bytes are no longer held; may end a pause, and lead back here before it returns."""
        self._own.give(memory)
        self._share.give(tenant, memory)

    def sent(self, tenant: str, memory: int) -> None:
        """The same, of what was written.

        Whoever is to read it may not take it: then it takes up memory as before, and is its tenant's until it does.
        """
        self._own.give(memory)
        if self._is_stuck:
            self._unsent[tenant] = self._unsent.get(tenant, 0) + memory
        else:
            self._share.give(tenant, memory)

    def stuck(self, is_stuck: bool) -> None:  # noqa: FBT001 - the new state
        """Whoever reads what is written takes no more, or does again."""
        self._is_stuck = is_stuck
        if not is_stuck:
            unsent, self._unsent = self._unsent, {}
            for tenant, memory in unsent.items():
                self._share.give(tenant, memory)


class PartialEntry:
    """An entry that has to wait, of which not all parts have come.

    They are kept as one: a client may write two bytes at a time, and each kept by itself would take 60.

    They count as memory of the client, and stop nobody: who is not read could never end the entry.

    Args:
        stream: Whose it is.
        entry: With its first part.
        memory: Where the parts count.
    """

    def __init__(self, stream: Stream, entry: Entry, memory: HeldMemory) -> None:
        self.stream = stream
        self.entry = entry
        self._memory = memory
        self._kept = bytearray(entry.frame)  # a list of parts of a byte each would take sixty times as much as they
        memory.keep_unfinished(len(self._kept))

    def add(self, part: bytes) -> None:
        """The next part came.

        Raises:
            TooMuchUnfinishedError: If no more may be kept for this client.
        """
        self._memory.keep_unfinished(len(part))
        self._kept += part

    def end(self) -> Entry:
        """No more is collected; the entry with all that has come."""
        self._memory.keep_unfinished(-len(self._kept))
        self.entry.frame = bytes(self._kept)
        return self.entry


class FrameWriter:
    """Writes frames to one peer: chunks passed on as they came, and whole frames between them, never inside of others.

    What the proxy itself says to a client are replies: answers to lookups, refusals, errors of blocks and of limits
    that reject; and the broker's receipts where such errors have their place among them. A client that cannot have its
    replies yet is not read, or it could make the proxy keep any number.

    Attributes:
        waiting: Whole frames, until the one under way has ended.

    Args:
        writer: The peer's.
        client: The client whom replies are for; None for the broker, to whom there are none.
    """

    def __init__(self, writer: SocketWriter, client: PeerTransport | None = None) -> None:
        self.mid_frame = False
        self.waiting: list[bytes] = []
        self._writer = writer
        self._client = client
        self._is_taken = True

    def pass_on(self, chunk: Bytes, *, mid_frame: bool) -> None:
        """Write a part of the passing stream, which ends inside a frame or at the end of one."""
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
        """Answer the client; it is not read while it takes no answers, or as many wait as may."""
        self.insert(frame)
        if self._client is not None and (not self._is_taken or len(self.waiting) >= MOST_REPLIES):
            self._client.throttle(Cause.REPLIES)

    def writable(self, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """The peer's write buffer ran full, or has room again."""
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
            self._client.unthrottle(Cause.REPLIES)


class DataPath(Receiver):
    """One direction of a session: meters, holds and forwards what one peer sends.

    Of the streams in it, it is also the `Answering` of producers and the grantor of permits to consumers.

    Attributes:
        streams: Whose entries pass, by the peer's number for them.
        backlog: What was read and waits for a pause to end.
        rejections: Answers producers whose messages a limit refuses; None towards the client.

    Args:
        payload_kind: SEND (client to broker) or MESSAGE (broker to client).
        max_frame: Most bytes of a frame.
        source: Where it is read, and paused.
        writer: Where it goes.
        memory: Counts what is held.
        rate_limiter: Decides what passes.
        handle: Takes each command.
        counters: Told of entries of no stream.
        clock: Monotonic nanoseconds.
        rejections: As the attribute.
        publishes: Told of each publish, or of each receipt, if they are counted.
        most_messages: What an entry may say it holds; a publish beyond it is an error, a delivery counts as it.
        oversized: Told how many messages a delivery beyond it said.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what its Args say
        self,
        payload_kind: int,
        max_frame: int,
        source: Throttled,
        writer: FrameWriter,
        memory: HeldMemory,
        rate_limiter: RateLimiter,
        handle: CommandHandler,
        counters: Counters,
        clock: Callable[[], int],
        *,
        rejections: Rejections | None = None,
        publishes: PendingPublishes | None = None,
        most_messages: int = 0,
        oversized: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        self.streams: dict[int, Stream] = {}
        self.scanner = FrameScanner(payload_kind, max_frame)
        self.writer = writer
        self.memory = memory
        self.rejections = rejections
        self.backlog = b""
        self.is_over = False
        self._source = source
        self._rate_limiter = rate_limiter
        self._handle = handle
        self._counters = counters
        self._clock = clock
        self._payload_kind = payload_kind
        self._sent = publishes if payload_kind == SEND else None
        self._receipts = publishes if payload_kind == MESSAGE else None
        self._kept = 0
        self._partial: PartialEntry | None = None
        self._is_skipping = False
        self.scanner.counts_receipts = self._receipts is not None
        if most_messages > 0:
            self.scanner.heads.max_messages = most_messages
        if oversized is not None:  # of the streams, and not of this, which has the scanner: garbage to be searched for
            self.scanner.heads.not_believed = partial(_overdraw, self.streams, most_messages, oversized)

    def feed(self, data: bytes, size: int) -> None:
        """Take what was read: the first `size` bytes of `data`, which may be other ones afterwards.

        Raises:
            ProtocolError: If the peer broke the protocol; nothing more can be fed.
        """
        now = self._clock()
        scanner, sent = self.scanner, self._sent
        scanner.most_owners = len(self.streams) + _STRANGERS
        if self.backlog:
            self._set_aside(self.backlog + data[:size])
        elif (
            not self.keeps_the_rest
            and not self.writer.waiting
            and not (self.memory.is_any and self._begins_with_held(data, size))
            and scanner.scan(data, size)
            and not (scanner.ends_mid_frame and self.memory.is_any)
            and (sent is None or sent.has_room(scanner.tallies, ends_mid_frame=scanner.ends_mid_frame))
            and self._admit(scanner.tallies, now)
        ):
            scanner.accept(data)
            self._forward(data, size)
            self.passes = True
            if sent is not None:
                sent.passed_uncut(scanner.tallies)
            if self._receipts is not None:
                self._receipts.answered_in_chunk(scanner.receipts)
        else:
            self.passes = False
            self._feed_cut(data, size, now)
        self._count_kept(scanner.kept)

    def resume(self) -> None:
        """Go on with what a pause left over."""
        chunk = self.backlog
        if chunk:
            self._set_aside(b"")
            self._feed_cut(chunk, len(chunk), self._clock())
            self._count_kept(self.scanner.kept)

    def writable(self, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """The peer that gets what passes takes no more, or does again."""
        self.memory.stuck(not is_writable)
        self.writer.writable(is_writable)

    def limit_frames(self, most: int) -> None:
        """Frames of more bytes break the protocol."""
        self.scanner.heads.max_size = most

    def stop(self) -> None:
        """The session has ended, perhaps because of a command that is being handled: nothing more is."""
        self.is_over = True
        self._set_aside(b"")
        self._count_kept(0)
        self.memory.stuck(False)

    def let_go(self) -> None:
        """Both connections are gone. The handler of commands knows this path: a search would have to find them."""
        self._handle = _ignored

    def forget(self, stream: Stream) -> None:
        """A stream is over."""
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
                or not self._rate_limiter.admit(stream, _charged(stream, tally), tally.size, now)
            ):
                for position, one in enumerate(admitted):
                    self._rate_limiter.withdraw(one, _charged(one, tallies[position]), tallies[position].size)
                return False
            admitted.append(stream)
        delivered: list[tuple[Permits, Tally]] = []
        for position, stream in enumerate(admitted):
            tally = tallies[position]
            self._rate_limiter.count_admitted(
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
            self.writer.pass_on(scanner.lead, mid_frame=True)
        goes = size - scanner.keep
        if goes > 0:
            part = data[:goes] if goes <= _COPIED else memoryview(data)[:goes]
            self.writer.pass_on(part, mid_frame=scanner.mid_frame)

    # ---- the slow path

    @property
    def keeps_the_rest(self) -> bool:
        """Whether the frame under way does not go out: the rest of it must come here."""
        return self._partial is not None or self._is_skipping

    def _feed_cut(self, chunk: bytes, size: int, now: int) -> None:
        data, pieces = self.scanner.cut(chunk, size)
        end = self.scanner.end
        for piece in pieces:
            if piece.kind == TAIL:
                self._go_on(data[piece.start : piece.stop], whole=piece.whole)
            elif piece.kind == self._payload_kind:
                self._offer(data, piece, now)
            else:
                self._command(data, piece, is_last=piece.stop == end)
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
        """Pass an entry, or hold or refuse it.

        One of no stream that the broker let in goes nowhere: nothing would meter it, or somebody who was not let in
        would be charged, to the debt of others; and neither brokers nor clients do anything with it.
        """
        stream = self.streams.get(piece.owner)
        if stream is None or not stream.is_accepted:
            self._counters.entries_ignored += 1
            self._is_skipping = not piece.whole
            return
        self._rate_limiter.count_offered(stream, 1, piece.messages, piece.size)
        may_pass = piece.whole or not self.memory.is_any
        if may_pass and self._rate_limiter.pass_entry(stream, piece.messages, piece.size, now):
            self._pass(stream, data, piece)
        elif stream.is_rejected and self._refuses(stream, data, piece, now):
            self._is_skipping = not piece.whole
        else:
            self._keep(stream, data, piece, now)

    def _go_on(self, part: bytes, *, whole: bool) -> None:
        """The next part of the frame under way; `whole` with the last one."""
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
            self._hold(begun.stream, begun.end(), self._clock())

    def _command(self, data: bytes, piece: Piece, *, is_last: bool) -> None:
        """Pass what the handler makes of a command; at once, if it is the last thing that was read."""
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
        """Tell the client if a limit refuses an entry that did not pass; else it is held and will be answered."""
        command, rejections, limiter = _command_of(data, piece), self.rejections, None
        if rejections is None:
            return False
        if rejections.is_ready_for(stream) and rejections.may_refuse(command):
            limiter = rejecting(stream, now)
        if limiter is None:
            rejections.accepted(stream, command)
            return False
        self._rate_limiter.count_rejected(stream, limiter, piece.messages, piece.size)
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
                self._partial = PartialEntry(stream, entry, self.memory)
            except ProtocolError:
                self._rate_limiter.count_dropped(stream, entry.messages, entry.size)
                raise

    # ---- what is held

    def holds_any(self) -> bool:
        """Whether something is held here.

        Then no frame may go out in parts: while its rest is missing, what the limits let pass could not leave, and
        would leave at once with the rest, against the limit.
        """
        return self.memory.is_any

    def hold_behind(self, stream: Stream, frame: bytes) -> None:
        """Let a command that refers to a held stream wait behind what is held."""
        now = self._clock()
        self._hold(stream, Entry(frame, 0, 0, 0, now), now)

    def release(self, stream: Stream, entry: Entry) -> None:
        """A held entry of this stream may pass.

        This may end a pause and so lead back into `resume`, and from there to the limits, before it returns; so
        nothing here relies on what was so before.
        """
        self.writer.insert(entry.frame)
        if self._sent is not None and not entry.is_free:
            self._sent.passed(stream.name.stream_id, 1)
        self.memory.sent(stream.name.tenant, entry.memory)

    def give_back(self, stream: Stream, dropped: list[Entry]) -> None:
        """Entries of this stream are no longer held, and will not pass; commands among them go on."""
        for entry in dropped:
            if entry.is_free:
                self.writer.insert(entry.frame)
        if dropped:
            self.memory.give(stream.name.tenant, sum([entry.memory for entry in dropped]))

    def abandon(self) -> None:
        """Its streams are over; a frame of which parts were kept goes nowhere, nor does the rest of it."""
        if self._partial is not None:
            stream, entry = self._partial.stream, self._partial.end()
            self._partial = None
            self._is_skipping = True
            self._rate_limiter.count_dropped(stream, entry.messages, entry.size)

    def _hold(self, stream: Stream, entry: Entry, now: int) -> None:
        if not stream.is_open:
            self._rate_limiter.count_dropped(stream, entry.messages, entry.size)
            return
        entry.memory = ENTRY_OVERHEAD + len(entry.frame)
        self.memory.take(stream.name.tenant, entry.memory)
        self._rate_limiter.hold(stream, entry, now)

    # ---- deferred responses: another process keeps a producer's limits, and says later what becomes of its messages.
    # Until then these are held; what is heard comes in their order, so the client's answers keep theirs.

    def may_refuse(self, entry: Entry) -> bool:
        """Whether its client would give up this message alone, if it is refused."""
        return self.rejections is not None and self.rejections.may_refuse(command_in(entry.frame))

    def accepted(self, stream: Stream, entry: Entry) -> None:
        """A message that a limit might have refused is about to go on."""
        if self.rejections is not None:
            self.rejections.accepted(stream, command_in(entry.frame))

    def refused(self, stream: Stream, entry: Entry, reason: str) -> None:
        """A limit refuses this message, which is not held any more."""
        self.give_back(stream, [entry])
        if self.rejections is not None:
            self.rejections.refused(stream, reason, command_in(entry.frame))

    # ---- FLOW: what a client asks for of its consumers' messages, and what of that is passed on to the broker

    def ask(self, command: bytes, frame: bytes) -> bytes | None:
        """A FLOW of the client's, for a consumer in this path: the frame that goes on to the broker, or None."""
        consumer_id, permits = read_flow(command)
        if consumer_id >= 0:
            return frame if self._asks(consumer_id, permits) else None
        flow = read(command)
        return encode(flow) if self._asks(flow.consumer_id, flow.message_permits) else None

    def grant(self, consumer_id: int, permits: int) -> None:
        """Pass so many permits more, above 0, of a consumer on to the broker, which gets what goes in this path."""
        while permits > 0:
            portion = min(permits, MOST_PERMITS)
            self.writer.insert(flow_frame(consumer_id, portion))
            permits -= portion

    def _asks(self, consumer_id: int, permits: int) -> bool:
        """Count what is asked for. Whether the FLOW goes on as it came; else it stays here, and others may go for it.

        Brokers close the whole connection for a FLOW of 0, which stays here, and for one above MOST_PERMITS, which goes
        in parts. One of a consumer that the broker has not let in stays, too, as brokers ignore it; and one of a
        consumer that asked to be closed: what came for it would go nowhere.
        """
        stream = self.streams.get(consumer_id)
        if permits == 0 or stream is None or stream.permits is None or not stream.is_accepted:
            return False
        return stream.permits.ask(permits, as_it_came=permits <= MOST_PERMITS)

    # ---- what is kept

    def _count_kept(self, kept: int) -> None:
        """So many bytes of a frame that cannot be judged yet are kept back."""
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
    """A delivery says that it holds more messages than an entry may, and counts as `most`.

    Else one SEND of one message, whose metadata says two billion, would put limits of deliveries in debt for weeks. The
    broker takes as many permits as the metadata say.
    """
    oversized(messages)
    stream = streams.get(consumer_id)
    if stream is not None and stream.permits is not None:
        stream.permits.overdraw(messages - most)


def _ignored(_kind: int, _command: bytes, _frame: bytes) -> bytes | None:
    return None
