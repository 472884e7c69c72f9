"""One TCP connection of a session: the client's, or the broker's."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from protocol.errors import ProtocolError
from proxy.sessions.read_buffer import LEAST_READ, STEPS
from proxy.sessions.read_scheduler import AddressGroup
from proxy.sessions.relay import Relay
from proxy.sessions.sender import Sender
from proxy.sessions.shared import Shared
from proxy.sessions.sockets import address_of, descriptor_of, has_left
from proxy.sessions.throttle import Cause, Throttled

FULL_READS: Final = 8  # in a row, of the longest kind or where not all passes: then others have their turn

_TURN = frozenset({Cause.TURN})
_OF_MANY = frozenset({Cause.HOLD_CONNECTION, Cause.HOLD_PROCESS})
"""Reasons that end for many connections in one turn of the loop, when tokens come."""


class LegOwner(Protocol):
    """Who is told what happens on a leg."""

    def arrived(self, leg: "Leg", chunk: bytes) -> None:
        """Bytes came, and there is no relay."""

    def broke_protocol(self, leg: "Leg", error: ProtocolError) -> None:
        """The relay cannot take what came."""

    def writable(self, leg: "Leg", is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """The leg's write buffer ran full or has room again."""

    def opened(self, leg: "Leg") -> None:
        """The connection is there."""

    def half_closed(self, leg: "Leg") -> None:
        """The peer will send no more."""

    def not_taken(self, leg: "Leg", unsent: int, seconds: float) -> None:
        """For so long the client has taken nothing of so many bytes; of none, if it took something."""

    def lost(self, leg: "Leg", error: Exception | None) -> None:
        """The connection is gone."""

    def throttle_changed(self, leg: "Leg", cause: Cause, is_raised: bool) -> None:  # noqa: FBT001 - the new state
        """A reason not to read came or went."""

    def read_on(self, leg: "Leg") -> None:
        """No reason is left."""


class _Nobody:
    """Owns the legs of sessions that are over."""

    def arrived(self, leg: "Leg", chunk: bytes) -> None:
        pass

    def broke_protocol(self, leg: "Leg", error: ProtocolError) -> None:
        pass

    def writable(self, leg: "Leg", is_writable: bool) -> None:  # noqa: FBT001 - as in LegOwner
        pass

    def opened(self, leg: "Leg") -> None:
        leg.disown()

    def half_closed(self, leg: "Leg") -> None:
        pass

    def not_taken(self, leg: "Leg", unsent: int, seconds: float) -> None:
        pass

    def lost(self, leg: "Leg", error: Exception | None) -> None:
        pass

    def throttle_changed(self, leg: "Leg", cause: Cause, is_raised: bool) -> None:  # noqa: FBT001 - as in LegOwner
        pass

    def read_on(self, leg: "Leg") -> None:
        pass


_NOBODY = _Nobody()


class Leg(Throttled):
    """Gives what is read to its relay, or else to its owner, and counts the reasons not to read.

    It is an `asyncio.BufferedProtocol` without the name, which compiled classes cannot inherit from; uvloop looks for
    `get_buffer`, not for the name.

    Attributes:
        owner: Told of everything.
        group: All connections for clients of the same address; None before it is connected, and behind its end.
        relay: Takes what is read, in place of the owner, while there is one.
        sender: What is to be sent goes there.

    Args:
        side: `client` or `broker`, for people.
        owner: The session.
        shared: What it has in common with all others.
    """

    __slots__ = (
        "_abort_timer",
        "_buffer",
        "_full_reads",
        "_is_at_end",
        "_line",
        "_step",
        "_transport",
        "bytes_read",
        "group",
        "owner",
        "relay",
        "sender",
        "side",
    )

    def __init__(self, side: str, owner: LegOwner, shared: Shared) -> None:
        super().__init__()
        self.side = side
        self.bytes_read = 0
        self.relay: Relay | None = None
        self.group: AddressGroup | None = None
        self.sender = Sender(shared.turn_end, shared.unsent if side == "client" else None)
        self.owner = owner
        self._line = shared.line
        self._buffer = shared.buffer
        self._step = 0
        self._full_reads = 0
        self._is_at_end = False
        self._transport: asyncio.Transport | None = None
        self._abort_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self.sender.open(self._transport)
        self.owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Not called by the loop, as there is a buffer; but it asks for the name, and not to find it costs it more."""
        raise NotImplementedError

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Called by the loop, which reads into it."""
        return self._buffer.views[self._step]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop, which has read so much."""
        group = self.group
        is_measured = group is not None and group.is_crowded
        began = group.begin(self) if group is not None and is_measured else 0
        self.bytes_read += nbytes
        self.take(self._buffer.data, nbytes)
        relay = self.relay
        if relay is None:
            self._full_reads = 0
        elif nbytes < LEAST_READ << self._step:
            self._full_reads = 0
            if not relay.passes:
                self._step = 0
        else:
            self._was_full(relay)
        if group is not None and is_measured:
            group.end(self, began)

    def _was_full(self, relay: Relay) -> None:
        """As much came as could be read at once."""
        if relay.passes and self._step < STEPS:
            self._step += 1
        else:
            self._full_reads += 1
            if self._full_reads == FULL_READS:
                self._full_reads = 0
                self.yield_turn()
        if not relay.passes:
            self._step = 0

    def take(self, data: bytes, size: int) -> None:
        """Pass on what was read, now or before there was a relay: the first `size` bytes of `data`."""
        if self.relay is None:
            self.owner.arrived(self, data[:size])
            return
        try:
            self.relay.feed(data, size)
        except ProtocolError as error:
            self.owner.broke_protocol(self, error)

    def pause_writing(self) -> None:
        """Called by the loop."""
        self.owner.writable(self, False)

    def resume_writing(self) -> None:
        """Called by the loop."""
        self.sender.resumed()
        self.owner.writable(self, True)

    def not_taken(self, unsent: int, seconds: float) -> None:
        """Called when its sender is looked at; see `LegOwner`."""
        self.owner.not_taken(self, unsent, seconds)

    def eof_received(self) -> bool:
        """Called by the loop; the other direction stays open."""
        self._is_at_end = True
        self.owner.half_closed(self)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        group = self.group
        began = group.clock() if group is not None else 0
        self._leave_group()
        self._transport = None
        self.sender.shut()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None
        self.owner.lost(self, exc)
        if group is not None and group.is_crowded:
            group.charge(group.clock() - began)

    @property
    def address(self) -> str:
        """Of the peer, as `host:port`; empty if there is no connection. To ask costs two calls of the system."""
        return address_of(self._transport.get_extra_info("peername")) if self._transport is not None else ""

    @property
    def protocol(self) -> asyncio.BaseProtocol:
        """This leg, as the loop wants it."""
        return cast("asyncio.BaseProtocol", self)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, be it an ending one."""
        return self._transport is not None

    def write_eof(self) -> None:
        """Send what is written, then say that no more will come."""
        self.sender.flush()
        if self._transport is not None and not self._transport.is_closing():
            self.sender.shut()
            self._transport.write_eof()

    def is_stopped(self) -> bool:
        """Whether there is one that ends only when something has happened: not that it is the others' turn."""
        return bool(self.causes) and self.causes != _TURN

    def set_throttle(self, cause: Cause, *, on: bool) -> None:
        """A reason not to read comes or goes."""
        if on:
            self.throttle(cause)
        else:
            self.unthrottle(cause)

    def throttled_for(self, cause: Cause) -> Callable[[bool], None]:
        """What a budget is to call when it becomes full (True), and when it has room (False)."""
        return partial(self._set_throttle, cause)

    def throttle(self, cause: Cause) -> None:
        """Do not read, for this reason."""
        if self._transport is not None and not self._transport.is_closing():
            self.raise_cause(cause, self._transport)

    def unthrottle(self, cause: Cause) -> None:
        """This reason is gone."""
        self.end_cause(cause)

    def yield_turn(self) -> None:
        """Read on when the loop has looked after everybody else."""
        self.throttle(Cause.TURN)
        self._line.join(self)

    def turn_came(self) -> bool:
        """Read on, if nothing else is against it by now. Whether it did."""
        is_stopped = len(self.causes) > 1
        self.unthrottle(Cause.TURN)
        return not is_stopped

    def has_left(self) -> bool:
        """Whether the peer has closed or reset the connection; while it is not read, nobody else tells."""
        return self._transport is not None and has_left(self._transport)

    def resume_reading(self) -> None:
        """Read again, if there is still no reason against it; who has nothing more to say says so again."""
        if self._transport is None or self._transport.is_closing() or self.causes:
            return
        if self._is_at_end or self.group is None or not self.group.resume(self):
            self.start_reading()

    def join(self, group: AddressGroup | None) -> None:
        """From now on it is read as one of the connections of its client's address."""
        self.group = group
        if group is not None:
            group.join(self)

    def descriptor(self) -> int:
        """The socket's descriptor; -1 if there is none, or if its readability does not show there."""
        return descriptor_of(self._transport) if self._transport is not None else -1

    def may_be_read(self) -> bool:
        """Whether it is connected, has more to say, and no reason is against reading it."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self.causes and not self._is_at_end

    def start_reading(self) -> None:
        """Have the loop read it."""
        if self._transport is not None:
            self._transport.resume_reading()

    def stop_reading(self) -> None:
        """Have the loop leave it alone."""
        if self._transport is not None:
            self._transport.pause_reading()

    def _leave_group(self) -> None:
        group, self.group = self.group, None
        if group is not None:
            group.leave(self)

    def close(self, patience: float) -> None:
        """Send what is written, then close; give up on a peer that does not take it within `patience` seconds."""
        self.sender.flush()
        self._line.leave(self)
        self.relay = None
        transport = self._transport
        if transport is not None and self._abort_timer is None:
            transport.close()
            self._abort_timer = asyncio.get_running_loop().call_later(patience, transport.abort)

    def disown(self) -> None:
        """Drop a connection that came after its dial was cancelled; the loop may never say that it is gone."""
        self._leave_group()
        transport, self._transport = self._transport, None
        self.sender.shut()
        if transport is not None:
            transport.abort()

    def let_go_of_owner(self) -> None:
        """All is over. Two that know each other are gone only when Python searches for such; now they do not."""
        self.owner = _NOBODY

    def _set_throttle(self, cause: Cause, on: bool) -> None:  # noqa: FBT001 - as a budget tells it
        self.set_throttle(cause, on=on)

    def cause_changed(self, cause: Cause, is_raised: bool) -> None:  # noqa: FBT001 - the new state
        """A reason not to read came or went."""
        self.owner.throttle_changed(self, cause, is_raised)

    def causes_ended(self, last: Cause) -> None:
        """Read on, unless many want to at once."""
        if last not in _OF_MANY:
            self._line.leave(self)
        elif not self._line.goes_first(self):
            self.throttle(Cause.TURN)
            return
        self.owner.read_on(self)
