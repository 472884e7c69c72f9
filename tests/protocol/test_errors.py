"""Errors carry what a log line and a metric need."""

import pytest

from protocol.frames import ForeignProtocol, FrameTooLarge, MalformedFrame, ProtocolError

ERRORS = [FrameTooLarge(7, 5), MalformedFrame("why"), ForeignProtocol("http_request", "remedy")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_has_a_cause_that_is_a_label(error: ProtocolError) -> None:
    assert isinstance(error, ProtocolError)
    assert error.cause.isascii()
    assert error.cause.replace("_", "").isalpha()


def test_the_causes_differ() -> None:
    assert len({error.cause for error in [ProtocolError(), *ERRORS]}) == len(ERRORS) + 1


def test_a_foreign_protocol_leaves_the_cause_of_others_alone() -> None:
    assert ForeignProtocol("tls_hello", "remedy").cause == "tls_hello"
    assert ProtocolError("x").cause == "protocol"


def test_frame_too_large_names_size_and_limit() -> None:
    error = FrameTooLarge(6_000_000, 5_253_120)
    assert (error.size, error.limit) == (6_000_000, 5_253_120)
    assert str(error) == "a frame announces 6000000 bytes, this connection allows 5253120"
