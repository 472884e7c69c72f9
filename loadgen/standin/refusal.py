"""What the broker answers when it does not do what it was asked."""

from protocol.pulsar_pb2 import ServerError

UNASKED = 2**64 - 1
"""The request id of what the broker does of its own accord."""


class Refused(Exception):
    """The request gets an ERROR of this code; the connection lives on."""

    def __init__(self, error: ServerError, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
