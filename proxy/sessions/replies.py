"""The proxy's own answers to a client: lookups and producers that it refuses, redirects that it followed."""

from proxy.sessions.leg import Leg
from proxy.sessions.outlet import Outlet
from proxy.sessions.throttle import Cause


class Replies:
    """Sends answers; a client that does not take them is not read, or it could make the proxy keep any number.

    Args:
        outlet: Where they go, between the broker's frames.
        client: Whose reading stops.
    """

    def __init__(self, outlet: Outlet, client: Leg) -> None:
        self._outlet = outlet
        self._client = client
        self._is_taken = True

    def send(self, frame: bytes) -> None:
        """Answer the client."""
        self._outlet.insert([frame])
        if not self._is_taken:
            self._client.throttle(Cause.REPLIES)

    def writable(self, is_writable: bool) -> None:  # noqa: FBT001 - the new state
        """The client's write buffer ran full, or has room again."""
        self._is_taken = is_writable
        if is_writable:
            self._client.unthrottle(Cause.REPLIES)
