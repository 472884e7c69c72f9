"""What is to be done when the broker answers a request: a client's that went by, or the proxy's own."""

from collections.abc import Callable

from google.protobuf.message import Message

from protocol.errors import ProtocolError
from proxy.refusals import NO_REQUEST

MOST_REQUESTS = 100_000


class TooManyRequestsError(ProtocolError):
    """A client has more requests without an answer than the proxy remembers."""

    cause = "too_many_requests"


class RequestIdReusedError(ProtocolError):
    """A client uses a request id for two requests at once."""

    cause = "request_id_reused"


Answered = Callable[[Message | None], bool]
"""Called with the broker's answer, or with None if it is an error; says whether the client is to hear it."""


class Requests:
    """Requests under way by their id; each is told once how it was answered."""

    __slots__ = ("_answered", "_next_own")

    def __init__(self) -> None:
        self._answered: dict[int, Answered] = {}
        self._next_own = NO_REQUEST - 1

    def sent(self, request_id: int, answered: Answered) -> None:
        """A request went by.

        Raises:
            TooManyRequestsError: If too many are under way.
            RequestIdReusedError: If this one is: its answer could not be told from the other's.
        """
        if request_id in self._answered:
            raise RequestIdReusedError(f"request id {request_id} is used again before its answer came")
        if len(self._answered) >= MOST_REQUESTS:
            raise TooManyRequestsError(f"{MOST_REQUESTS} requests are without an answer")
        self._answered[request_id] = answered

    def own(self, answered: Callable[[], None]) -> int:
        """The id for a request of the proxy's own; `answered` is called with its answer, be it an error.

        C++ clients count upwards from 0 and Java's from a random number under 2^62; the proxy counts downwards from the
        top, past what a strange client uses up there.
        """
        while self._next_own in self._answered:
            self._next_own -= 1
        request_id, self._next_own = self._next_own, self._next_own - 1

        def swallow(_answer: Message | None) -> bool:
            answered()
            return False

        self._answered[request_id] = swallow
        return request_id

    def done(self, request_id: int, answer: Message | None) -> bool:
        """The answer to a request came, None for an error; says whether the client is to hear it."""
        answered = self._answered.pop(request_id, None)
        return answered is None or answered(answer)
