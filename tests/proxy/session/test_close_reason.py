"""Why sessions end."""

import pytest

from protocol.pulsar_pb2 import NotAllowedError, ServerError, ServiceNotReady, TooManyRequests
from proxy.session.events import MOST_DETAIL, CloseReason, SessionEnd, end_by_peer


@pytest.mark.parametrize("side", ["client", "broker"])
def test_a_peer_that_goes_is_named_with_the_way_it_went(side: str) -> None:
    assert end_by_peer(side, None) == SessionEnd(CloseReason(f"{side}_closed"))
    assert end_by_peer(side, ConnectionResetError("reset by peer")) == SessionEnd(
        CloseReason(f"{side}_reset"), "reset by peer"
    )


def test_every_end_is_a_peers_own_or_trouble_or_meant_by_the_operator() -> None:
    others = [cause for cause in CloseReason if not cause.is_of_peer and not cause.is_trouble]
    told_as_sums = [CloseReason.TOO_MANY_CONNECTIONS, CloseReason.CONNECTION_RATE]
    assert others == [CloseReason.SHUTDOWN, CloseReason.DRAINED, *told_as_sums, CloseReason.BLOCKED, CloseReason.KICKED]
    assert not [cause for cause in CloseReason if cause.is_of_peer and cause.is_trouble]


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (CloseReason.BLOCKED, NotAllowedError),
        (CloseReason.TOO_MANY_CONNECTIONS, TooManyRequests),
        (CloseReason.CONNECTION_RATE, TooManyRequests),
        (CloseReason.TARGET_REFUSED, ServiceNotReady),
        (CloseReason.BROKER_UNREACHABLE, ServiceNotReady),
    ],
)
def test_the_error_says_whether_to_come_again(cause: CloseReason, error: ServerError) -> None:
    assert cause.error == error


def test_an_end_needs_no_sentence() -> None:
    assert SessionEnd(CloseReason.SHUTDOWN).detail == ""


def test_what_a_peer_said_is_cut() -> None:
    assert len(SessionEnd(CloseReason.FRAME_ERROR, "x" * 1_000_000).detail) == MOST_DETAIL
