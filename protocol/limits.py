"""Sizes that both sides of the protocol agree on, and the bound of names.

Source: org.apache.pulsar.common.protocol.Commands (DEFAULT_MAX_MESSAGE_SIZE, MESSAGE_SIZE_FRAME_PADDING).
"""

DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
FRAME_PADDING = 10 * 1024
MOST_NAME_BYTES = 4096
"""UTF-8 bytes of a name that a client may choose: of a topic, producer, subscription or consumer."""


def max_frame_size(max_message_size: int) -> int:
    """Bytes that a whole frame may have, its own length field included."""
    return max_message_size + FRAME_PADDING
