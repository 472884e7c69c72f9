"""Sizes as Pulsar has them."""

from protocol.limits import DEFAULT_MAX_MESSAGE_SIZE, FRAME_PADDING, max_frame_size


def test_a_frame_may_be_a_message_and_its_padding() -> None:
    assert (DEFAULT_MAX_MESSAGE_SIZE, FRAME_PADDING) == (5_242_880, 10_240)
    assert max_frame_size(DEFAULT_MAX_MESSAGE_SIZE) == 5_253_120
    assert max_frame_size(1) == 10_241
