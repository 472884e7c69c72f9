"""Sizes that both sides of the protocol agree on, and the bound of names.

Source: org.apache.pulsar.common.protocol.Commands (DEFAULT_MAX_MESSAGE_SIZE, MESSAGE_SIZE_FRAME_PADDING).
"""

DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
FRAME_PADDING = 10 * 1024
MOST_NAME_BYTES = 4096
"""UTF-8 bytes of a name that a client gives: of a topic (the full name), subscription, producer or consumer.

Pulsar has no such bound; Sluice keeps these names, writes them into its log and shows them, so each must cost little.
"""


def max_frame_size(max_message_size: int) -> int:
    """Bytes that a whole frame may have, its own length field included."""
    return max_message_size + FRAME_PADDING
