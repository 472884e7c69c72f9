"""What the proxy itself says to a client: answers to lookups, refusals, errors of blocks and of limits that reject.

The broker's receipts go here as well where such errors have their place among them.
"""

from proxy.sessions.leg import Leg
from proxy.sessions.outlet import Outlet
from proxy.sessions.throttle import Cause

MOST_WAITING = 100
"""Answers that wait for the end of a broker's frame which the broker does not end."""


class Replies:
    """Sends answers; a client that cannot have them yet is not read, or it could make the proxy keep any number.

    Args:
        outlet: Where they go, between the broker's frames.
        client: Whose reading stops.
    """

    __slots__ = ("_client", "_is_taken", "_outlet")

    def __init__(self, outlet: Outlet, client: Leg) -> None:
        self._outlet = outlet
        self._client = client
        self._is_taken = True
        outlet.has_written = self._go_on

    def send(self, frame: bytes) -> None:
        """Answer the client."""
        self._outlet.insert(frame)
        if not self._is_taken or len(self._outlet.waiting) >= MOST_WAITING:
            self._client.throttle(Cause.REPLIES)

    def writable(self, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """The client's write buffer ran full, or has room again."""
        self._is_taken = is_writable
        self._go_on()

    def _go_on(self) -> None:
        if self._is_taken and len(self._outlet.waiting) < MOST_WAITING:
            self._client.unthrottle(Cause.REPLIES)
