"""What a session tells the world."""

import pytest
from structlog.testing import capture_logs

from accesslog.record import ConnectionLine, ThrottleLine
from proxy.observe.connection import Connection
from proxy.session.events import CloseReason, SessionEnd
from proxy.session.transport import PauseReason
from tests.proxy.conversation import World

CONNECTION = Connection(7, "192.0.2.1:5", "client", "handshake", "b:6650")


def test_connections_are_counted_by_what_they_are_for(world: World) -> None:
    log, connection = world.session_log, Connection(1)
    log.opened(connection)
    assert +world.counters.connections_open == {"handshake": 1}
    log.role_found(connection, "data")
    assert +world.counters.connections_open == {"data": 1}
    log.ended(connection, SessionEnd(CloseReason.CLIENT_CLOSED), bytes_from_client=1, bytes_from_broker=2, started_at=0)
    assert +world.counters.connections_open == {}
    assert world.counters.connections_accepted == 1


def test_a_pause_is_counted_when_it_begins_and_logged_when_it_ends(world: World) -> None:
    world.session_log.throttle_changed(CONNECTION, "client", PauseReason.WRITE_BUFFER, is_added=True, now=world.clock())
    assert +world.counters.throttled == world.counters.pauses == {"client write_buffer": 1}
    assert world.lines(ThrottleLine) == []
    world.advance(2)
    world.session_log.throttle_changed(
        CONNECTION, "client", PauseReason.WRITE_BUFFER, is_added=False, now=world.clock()
    )
    (line,) = world.lines(ThrottleLine)
    assert (line.connection_id, line.side, line.cause, line.duration_ms) == (7, "client", "write_buffer", 2000)
    assert +world.counters.throttled == {}


@pytest.mark.parametrize(("seconds", "lines"), [(0.049, 0), (0.05, 1)])
def test_short_pauses_are_only_counted(world: World, seconds: float, lines: int) -> None:
    """Where each entry or receipt may make one, their lines would crowd out all others."""
    world.session_log.throttle_changed(CONNECTION, "client", PauseReason.PUBLISH_RATE, is_added=True, now=world.clock())
    world.advance(seconds)
    world.session_log.throttle_changed(
        CONNECTION, "client", PauseReason.PUBLISH_RATE, is_added=False, now=world.clock()
    )
    assert len(world.lines(ThrottleLine)) == lines
    assert world.counters.pauses == world.counters.resumes == {"client publish_rate": 1}


@pytest.mark.parametrize(
    ("cause", "is_trouble"),
    [("client_closed", False), ("broker_closed", False), ("shutdown", False), ("client_reset", False)]
    + [(cause, True) for cause in ("frame_error", "target_refused", "broker_unreachable", "handshake_timeout")],
)
def test_only_trouble_is_the_operators_business(world: World, cause: str, *, is_trouble: bool) -> None:
    world.session_log.opened(CONNECTION)
    with capture_logs() as logs:
        world.session_log.ended(
            CONNECTION,
            SessionEnd(CloseReason(cause), "because"),
            bytes_from_client=10,
            bytes_from_broker=20,
            started_at=0,
        )
    assert len(logs) == is_trouble
    if is_trouble:
        assert logs[0]["client"] == "192.0.2.1:5"
        assert (logs[0]["cause"], logs[0]["detail"], logs[0]["log_level"]) == (cause, "because", "warning")
    (line,) = world.lines(ConnectionLine)
    assert (line.end_cause, line.detail, line.bytes_from_client, line.bytes_from_broker) == (cause, "because", 10, 20)


def test_who_floods_the_proxy_with_trouble_does_not_flood_the_operators_log(world: World) -> None:
    """Each is counted, and in the access log."""

    def trouble(number: int, host: str) -> None:
        connection = Connection(number, f"{host}:{number}")
        world.session_log.opened(connection)
        world.session_log.ended(
            connection,
            SessionEnd(CloseReason.FRAME_ERROR, "because"),
            bytes_from_client=10,
            bytes_from_broker=20,
            started_at=0,
        )

    with capture_logs() as logs:
        for number in range(1000):
            trouble(number, "192.0.2.1")
        trouble(1000, "192.0.2.2")
        world.advance(10)
        trouble(1001, "192.0.2.1")
    reports = [(line["client"], line["connections"]) for line in logs]
    assert reports == [("192.0.2.1:0", 1), ("192.0.2.2:1000", 1), ("192.0.2.1:1001", 1000)]
    assert +world.counters.connections_ended == {"frame_error": 1002}
    assert len(world.lines(ConnectionLine)) == 1002
