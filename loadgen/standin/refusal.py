"""What the broker answers when it does not do what it was asked."""

from protocol.pulsar_pb2 import ServerError


class Refused(Exception):
    """The request gets an ERROR (a SEND gets a SEND_ERROR) of this code; the connection lives on."""

    def __init__(self, error: ServerError, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
