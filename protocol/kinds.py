"""The size of a frame's head, and the types of the commands that are told apart by it alone.

Source: the frame of Pulsar's binary protocol; BaseCommand.Type of PulsarApi.proto.
"""

from typing import Final

HEAD: Final = 8
"""Bytes before the command: the size of the rest of the frame, and that of the command."""

SEND: Final = 6
SEND_RECEIPT: Final = 7
MESSAGE: Final = 9
ACK: Final = 10
ACK_RESPONSE: Final = 38
