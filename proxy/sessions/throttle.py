"""Pausing the reading of one leg for several independent reasons."""

from enum import StrEnum
from typing import Protocol

from mypy_extensions import mypyc_attr


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
    REFUSALS = "refusals"
    """Errors to its client wait for receipts that the broker has not sent."""
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


@mypyc_attr(allow_interpreted_subclasses=True)
class Throttled:
    """What may not be read while there are reasons: reading stops at the first, and goes on without the last.

    A flag would not do: two reasons overlap, and the first to end would open the tap. A base and no part: each idle
    connection has two of them, and what a part calls back would be four objects more.

    Attributes:
        causes: The reasons there are.

    Source: org.apache.pulsar.broker.service.ServerCnxThrottleTracker (PIP-322, PIP-434)
    """

    def __init__(self) -> None:
        self.causes: frozenset[Cause] = _NONE  # shared: an empty set is as large as all else here together

    def is_throttled(self) -> bool:
        """Whether there is a reason not to read."""
        return bool(self.causes)

    def raise_cause(self, cause: Cause, transport: Pausable) -> None:
        """There is a reason, and something to pause; telling it twice changes nothing."""
        if cause in self.causes:
            return
        self.causes |= {cause}
        if len(self.causes) == 1:
            transport.pause_reading()
        self.cause_changed(cause, True)

    def end_cause(self, cause: Cause) -> None:
        """A reason is gone."""
        if cause not in self.causes:
            return
        self.causes -= {cause}
        self.cause_changed(cause, False)
        if not self.causes:
            self.causes_ended(cause)

    def end_all_causes(self) -> None:
        """The connection ends: every reason is gone, and nothing is to be read."""
        for cause in self.causes:
            self.causes -= {cause}
            self.cause_changed(cause, False)

    def cause_changed(self, cause: Cause, is_raised: bool) -> None:  # noqa: FBT001 - the new state
        """A reason came or went."""
        raise NotImplementedError

    def causes_ended(self, last: Cause) -> None:
        """Nothing is against reading any more; `last` went last. There may be work to do before it is resumed."""
        raise NotImplementedError
