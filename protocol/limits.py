"""The largest message and frame that Pulsar's clients and brokers agree on, and the longest name.

Source: org.apache.pulsar.common.protocol.Commands (DEFAULT_MAX_MESSAGE_SIZE, MESSAGE_SIZE_FRAME_PADDING).
"""

DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
FRAME_PADDING = 10 * 1024
MOST_NAME_BYTES = 4096
"""Most UTF-8 bytes of a name that a client chooses: of a topic, producer, subscription or consumer."""


def max_frame_size(max_message_size: int) -> int:
    """Return the most bytes that a whole frame may have, its own length field included."""
    return max_message_size + FRAME_PADDING
