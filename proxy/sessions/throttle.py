"""Pausing the reading of one leg for several independent reasons."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol


class Cause(StrEnum):
    """Why a leg is not read; each is a label of `sluice_pauses_total`."""

    __hash__ = str.__hash__  # an enumeration's own is a call of Python

    CONNECTING = "connecting"
    """The broker's side is not there yet."""
    ADMISSION = "admission"
    """Whether something may come in is asked where it is counted for all workers."""
    HOLD_CONNECTION = "hold_connection"
    """This connection holds as many bytes as one may."""
    HOLD_PROCESS = "hold_process"
    """Something is held here of a tenant that holds too much of what all connections together may
    (maxMessagePublishBufferSizeInMB)."""
    PUBLISH_RATE = "publish_rate"
    """A producer is over its limit, and `publish.mode` is `pause`."""
    PENDING_PUBLISHES = "pending_publishes"
    """The broker has not answered as many publishes as it may have (maxPendingPublishRequestsPerConnection)."""
    WRITE_BUFFER = "write_buffer"
    """The other leg does not take what was read."""
    TURN = "turn"
    """It sent many small frames, or many bytes in a row, or is one of many that may be read on: others go first."""
    REPLIES = "replies"
    """The client does not take the proxy's own answers, or the broker does not end the frame that is before them."""


_NONE: frozenset[Cause] = frozenset()


class Pausable(Protocol):
    """The part of a transport that throttling needs."""

    def pause_reading(self) -> None:
        """Stop delivering bytes."""

    def resume_reading(self) -> None:
        """Deliver bytes again."""


class ThrottleTracker:
    """Counts the reasons for silence: reading stops when the count leaves 0 and resumes when it is back there.

    A flag would not do: two reasons overlap, and the first to end would open the tap.

    Args:
        changed: Called with (cause, raised) after each change.
        resumed: Called instead of `resume_reading` when the count is back at 0, with the cause that went last; it may
            find work to do first.

    Source: org.apache.pulsar.broker.service.ServerCnxThrottleTracker (PIP-322, PIP-434)
    """

    __slots__ = ("_changed", "_resumed", "causes")

    def __init__(self, changed: Callable[[Cause, bool], None], resumed: Callable[[Cause], None]) -> None:
        self.causes: frozenset[Cause] = _NONE  # shared: an empty set is as large as all else here together
        self._changed = changed
        self._resumed = resumed

    def throttle(self, cause: Cause, transport: Pausable) -> None:
        """There is a reason; telling it twice changes nothing."""
        if cause in self.causes:
            return
        self.causes |= {cause}
        if len(self.causes) == 1:
            transport.pause_reading()
        self._changed(cause, True)

    def unthrottle(self, cause: Cause) -> None:
        """A reason is gone."""
        if cause not in self.causes:
            return
        self.causes -= {cause}
        self._changed(cause, False)
        if not self.causes:
            self._resumed(cause)

    def clear(self) -> None:
        """The connection ends: every reason is gone, and nothing is to be read."""
        for cause in self.causes:
            self.causes -= {cause}
            self._changed(cause, False)
