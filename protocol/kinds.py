"""The size of a frame's head, and the command types that are recognized by number alone.

Source: the frame of Pulsar's binary protocol; BaseCommand.Type of PulsarApi.proto.
"""

from typing import Final

HEAD: Final = 8
"""Bytes before the command: the size of the rest of the frame, and the size of the command."""

SEND: Final = 6
SEND_RECEIPT: Final = 7
MESSAGE: Final = 9
ACK: Final = 10
ACK_RESPONSE: Final = 38
