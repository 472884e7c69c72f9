"""What is to be done when the broker answers a request that went by."""

from collections.abc import Callable

from google.protobuf.message import Message

from protocol.errors import ProtocolError

MOST_REQUESTS = 100_000


class TooManyRequestsError(ProtocolError):
    """A client has more requests without an answer than the proxy remembers."""

    cause = "too_many_requests"


class RequestIdReusedError(ProtocolError):
    """A client uses a request id for two requests at once."""

    cause = "request_id_reused"


Answered = Callable[[Message | None], None]
"""Called with the broker's answer, or with None if it is an error."""


class Requests:
    """Requests under way by their id; each is told once how it was answered."""

    def __init__(self) -> None:
        self._answered: dict[int, Answered] = {}

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

    def done(self, request_id: int, answer: Message | None) -> None:
        """The answer to a request came; None for an error."""
        answered = self._answered.pop(request_id, None)
        if answered is not None:
            answered(answer)
