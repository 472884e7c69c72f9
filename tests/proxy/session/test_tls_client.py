"""Clients that come by TLS, as conversations: handshakes, bytes in both directions, ends."""

import contextlib
import datetime as dt
import ssl
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.session.session import SessionState
from tests.proxy.conversation import BROKER, NOTHING, Broker, TlsClient, World
from tests.proxy.rereading import read_again
from tests.proxy.session.test_handshake_leaves_nothing import assert_nothing_stays
from tests.proxy.tls import Authorities, stranger
from tests.proxy.wire import PING, connect, connected, producer, producer_success, receipt, send

Make = Callable[..., World]
Failing = Callable[[World, Authorities], TlsClient]


@pytest.fixture(scope="session")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def make_tls(make_world: Make, authorities: Authorities) -> Make:
    def make(*, tls: dict[str, object] | None = None, **settings: object) -> World:
        return make_world(**authorities.settings(**(tls or {})), **settings)

    return make


@pytest.fixture
def tls_world(make_tls: Make) -> World:
    return make_tls()


def secured(world: World, authorities: Authorities) -> TlsClient:
    client = world.tls_client(authorities.client())
    client.shake_hands()
    return client


def paired(world: World, authorities: Authorities) -> tuple[TlsClient, Broker]:
    client = secured(world, authorities)
    client >> connect(f"{BROKER[0]}:{BROKER[1]}")
    broker = world.dialled()
    broker << connect()
    broker >> connected()
    client << connected()
    return client, broker


def publishing(world: World, authorities: Authorities) -> tuple[TlsClient, Broker]:
    client, broker = paired(world, authorities)
    client >> producer()
    broker << producer()
    broker >> producer_success()
    client << producer_success()
    return client, broker


def test_a_client_is_served_behind_its_handshake(tls_world: World, authorities: Authorities) -> None:
    client = tls_world.tls_client(authorities.client())
    session = tls_world.sessions[-1]
    assert (session.state, session.connection.is_tls) == (SessionState.SECURING, False)
    client.shake_hands()
    assert (session.state, session.connection.certificate_name) == (SessionState.GREETING, None)
    assert session.connection.is_tls
    client >> [connect(f"{BROKER[0]}:{BROKER[1]}"), PING]
    broker = tls_world.dialled()
    broker << [connect(), PING]
    broker >> [connected(), PING]
    client << [connected(), PING]


def test_plain_clients_are_served_beside_it(tls_world: World) -> None:
    client, broker = tls_world.pair()
    client >> PING
    broker << PING
    assert not tls_world.sessions[-1].connection.is_tls


def test_what_comes_with_the_last_of_the_handshake_is_heard(tls_world: World, authorities: Authorities) -> None:
    client = tls_world.tls_client(authorities.client())
    while not client.tries_handshake():
        client.send_records(client.records())
        client.hear_records()
    client.send_records(client.records() + client.sealed(connect()) + client.sealed(PING))
    tls_world.dialled() << [connect(), PING]


def test_a_handshake_may_be_cut_anywhere(tls_world: World, authorities: Authorities) -> None:
    client = tls_world.tls_client(authorities.client())
    while not client.tries_handshake():
        for byte in client.records():
            client.send_records(bytes([byte]))
        client.hear_records()
    for byte in client.records() + client.sealed(connect()):
        client.send_records(bytes([byte]))
    tls_world.dialled() << connect()


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 60_000), max_size=8), sizes=st.lists(st.integers(0, 40_000), max_size=4))
def test_records_may_be_cut_anywhere(authorities: Authorities, cuts: list[int], sizes: list[int]) -> None:
    world = World(**authorities.settings())
    client, broker = publishing(world, authorities)
    frames = [send(sequence_id, size=size) for sequence_id, size in enumerate(sizes, 1)]
    records = b"".join(client.sealed(frame) for frame in frames)
    at = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    for begin, end in pairwise(at):
        client.send_records(records[begin:end])
    broker << frames
    world.close()


def test_a_stream_of_some_mebibytes_arrives_as_it_was_sent_in_both_directions(
    tls_world: World, authorities: Authorities
) -> None:
    client, broker = publishing(tls_world, authorities)
    frames = [send(sequence_id, size=100_000) for sequence_id in range(1, 41)]
    client >> frames
    broker << frames
    answers = [receipt(sequence_id) for sequence_id in range(1, 41)]
    broker >> answers
    client << answers
    assert tls_world.sessions[-1].client.bytes_read > sum(map(len, frames))


# ---- handshakes that fail


def plain(world: World, authorities: Authorities) -> TlsClient:
    client = world.tls_client(authorities.client())
    client.send_records(connect())
    return client


def http(world: World, authorities: Authorities) -> TlsClient:
    client = world.tls_client(authorities.client())
    client.send_records(b"GET / HTTP/1.1\r\n\r\n")
    return client


def an_old_version(world: World, authorities: Authorities) -> TlsClient:
    """The client speaks TLS 1.1, as its ClientHello says; OpenSSL itself would not any more."""
    context = authorities.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client = world.tls_client(context)
    client.tries_handshake()
    hello = bytearray(client.records())
    assert hello[9:11] == b"\x03\x03"
    hello[9:11] = b"\x03\x02"
    client.send_records(bytes(hello))
    return client


def no_cipher_in_common(world: World, authorities: Authorities) -> TlsClient:
    context = authorities.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    return _tries(world, context)


def no_certificate(world: World, authorities: Authorities) -> TlsClient:
    return _tries(world, authorities.client())


def a_certificate_of_a_stranger(world: World, authorities: Authorities) -> TlsClient:
    return _tries(world, authorities.client(stranger().issue_cert("client.example", common_name="mallory")))


def an_expired_certificate(world: World, authorities: Authorities) -> TlsClient:
    gone = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    return _tries(world, authorities.client(authorities.client_certificate("alice", not_after=gone)))


def trusting_somebody_else(world: World, _authorities: Authorities) -> TlsClient:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger().configure_trust(context)
    client = world.tls_client(context)
    with pytest.raises(ssl.SSLCertVerificationError):
        client.shake_hands()
    client.send_records(client.records())
    return client


def leaving_in_the_middle(world: World, authorities: Authorities) -> TlsClient:
    client = world.tls_client(authorities.client())
    client.tries_handshake()
    client.send_records(client.records()[:100])
    client.half_close()
    return client


def reset_in_the_middle(world: World, authorities: Authorities) -> TlsClient:
    client = world.tls_client(authorities.client())
    client.tries_handshake()
    client.send_records(client.records())
    client.leave(ConnectionResetError("reset by peer"))
    return client


def garbage_in_the_middle(world: World, authorities: Authorities) -> TlsClient:
    client = world.tls_client(authorities.client())
    client.tries_handshake()
    client.send_records(client.records() + b"\x16\x03\x03\x00\x05" + b"\xff" * 64)
    return client


def _tries(world: World, context: ssl.SSLContext) -> TlsClient:
    client = world.tls_client(context)
    with contextlib.suppress(ssl.SSLError):
        client.shake_hands()
    return client


FAILURES = [
    (plain, {}, "plain_bytes", "speaks no TLS on a port that does: use pulsar"),
    (http, {}, "plain_bytes", "speaks no TLS: an HTTP request"),
    (an_old_version, {}, "no_shared_version", "speaks no version of TLS that is allowed"),
    (no_cipher_in_common, {}, "no_shared_cipher", "offers no cipher"),
    (no_certificate, {"client_auth": "required"}, "no_certificate", "shows no certificate"),
    (
        a_certificate_of_a_stranger,
        {"client_auth": "required"},
        "certificate_untrusted",
        "not trusted: unable to get local issuer certificate",
    ),
    (
        a_certificate_of_a_stranger,
        {"client_auth": "optional"},
        "certificate_untrusted",
        "not trusted: unable to get local issuer certificate",
    ),
    (an_expired_certificate, {"client_auth": "optional"}, "certificate_expired", "has expired"),
    (trusting_somebody_else, {}, "own_certificate_refused", "does not accept the certificate that it is shown"),
    (leaving_in_the_middle, {}, "left", "left in the middle of the handshake"),
    (reset_in_the_middle, {}, "left", "left in the middle of the handshake: reset by peer"),
    (garbage_in_the_middle, {}, "broken", "breaks TLS"),
]


@pytest.mark.parametrize(("failing", "tls", "failure", "words"), FAILURES, ids=[each[0].__name__ for each in FAILURES])
def test_a_handshake_that_fails_says_why_once_and_leaves_nothing(
    make_tls: Make, authorities: Authorities, failing: Failing, tls: dict[str, object], failure: str, words: str
) -> None:
    world = make_tls(tls=tls)
    resting = world.loop.timers
    with capture_logs() as logs:
        client = failing(world, authorities)
        world.advance(1)
    (line,) = logs
    assert (line["event"], line["cause"], line["client"]) == ("connection closed", "tls_failed", "192.0.2.7:40001")
    assert words in line["detail"]
    assert +world.counters.tls_failures == {f"client {failure}": 1}
    assert +world.counters.connections_ended == {"tls_failed": 1}
    assert client.is_gone
    assert world.dials == []
    assert_nothing_stays(world, resting)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_until_its_certificate_expires(
    make_tls: Make, authorities: Authorities, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion
) -> None:
    """OpenSSL looks at a certificate in a full handshake only."""
    world = make_tls(tls={"client_auth": "required"})
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    context = authorities.client(authorities.client_certificate("alice", not_after=tomorrow))
    context.minimum_version = context.maximum_version = version
    first = world.tls_client(context)
    first.shake_hands()
    first.hear_records()
    first.heard_bytes()
    session = first.ssl.session
    resumed = [world.tls_client(context) for _ in range(2)]
    for client in resumed:
        client.ssl = context.wrap_bio(client._incoming, client._outgoing, server_hostname="localhost", session=session)
    resumed[0].shake_hands()
    assert (resumed[0].ssl.session_reused, world.sessions[1].connection.certificate_name) == (True, "alice")
    later = tomorrow.timestamp() + 1
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: later)
        resumed[1].shake_hands()
    assert resumed[1].ssl.session_reused
    assert +world.counters.tls_failures == {"client certificate_expired": 1}
    assert world.sessions[2].connection.certificate_name is None


@pytest.mark.parametrize(
    ("failing", "tls", "alert"),
    [
        (an_old_version, {}, "PROTOCOL_VERSION"),
        (no_certificate, {"client_auth": "required"}, "CERTIFICATE_REQUIRED"),
        (a_certificate_of_a_stranger, {"client_auth": "required"}, "UNKNOWN_CA"),
        (an_expired_certificate, {"client_auth": "required"}, "CERTIFICATE_EXPIRED"),
    ],
)
def test_the_client_finds_an_alert_that_says_why(
    make_tls: Make,
    authorities: Authorities,
    failing: Failing,
    tls: dict[str, object],
    alert: str,
) -> None:
    client = failing(make_tls(tls=tls), authorities)
    client.send_records(b"what it said before it could know")
    assert client.transport.is_eof_sent
    assert not client.is_gone, "or the kernel might answer with a reset, behind which no alert is read"
    with pytest.raises(ssl.SSLError, match=alert):
        client.shake_hands() if client.ssl.version() is None else client.heard_bytes()
    client.half_close()
    assert client.is_gone


def test_of_a_client_whose_tls_failed_little_more_is_read(tls_world: World, authorities: Authorities) -> None:
    client = an_old_version(tls_world, authorities)
    client.send_records(b"x" * 60_000)
    assert not client.is_gone
    client.send_records(b"x" * 10_000)
    assert client.is_gone


@pytest.mark.parametrize("tls", [{"client_auth": "optional"}, {"client_auth": "required"}])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_name_in_a_certificate_is_known(
    make_tls: Make, authorities: Authorities, tls: dict[str, object], version: ssl.TLSVersion
) -> None:
    world = make_tls(tls=tls)
    context = authorities.client(authorities.client_certificate("alice"))
    context.minimum_version = context.maximum_version = version
    client = world.tls_client(context)
    client.shake_hands()
    client >> connect()
    world.dialled() << connect()
    assert world.sessions[-1].connection.certificate_name == "alice"


def test_a_client_need_not_show_an_optional_certificate(make_tls: Make, authorities: Authorities) -> None:
    world = make_tls(tls={"client_auth": "optional"})
    paired(world, authorities)
    assert world.sessions[-1].connection.certificate_name is None


def test_a_new_certificate_is_for_new_handshakes_and_open_sessions_go_on(
    tls_world: World, authorities: Authorities
) -> None:
    client, broker = paired(tls_world, authorities)
    authorities.renew("127.0.0.1")
    read_again(tls_world.engine.tls)()
    with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
        secured(tls_world, authorities)
    authorities.renew()
    read_again(tls_world.engine.tls)()
    secured(tls_world, authorities)
    client >> PING
    broker << PING


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_new_authority_refuses_old_clients_and_open_ones_stay(
    make_world: Make, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Nor by a TLS session from before, in which no certificate is shown."""
    authorities = Authorities(tmp_path)
    world = make_world(**authorities.settings(client_auth="required"))
    context = authorities.client(authorities.client_certificate("alice"))
    context.minimum_version = context.maximum_version = version
    client = world.tls_client(context)
    client.shake_hands()
    client >> connect(f"{BROKER[0]}:{BROKER[1]}")
    broker = world.dialled()
    broker << connect()
    broker >> connected()
    client << connected()
    before = client.ssl.session
    new = trustme.CA()
    new.cert_pem.write_to_path(tmp_path / "clients.pem")
    read_again(world.engine.tls)()
    with capture_logs() as logs:
        again = world.tls_client(context)
        again.ssl = context.wrap_bio(again._incoming, again._outgoing, server_hostname="localhost", session=before)
        with contextlib.suppress(ssl.SSLError):
            again.shake_hands()
    assert [(line["cause"], "not trusted" in line["detail"]) for line in logs] == [("tls_failed", True)]
    assert +world.counters.tls_failures == {"client certificate_untrusted": 1}
    client >> PING
    broker << PING
    of_new = authorities.client(new.issue_cert("client.example", common_name="bob"))
    of_new.minimum_version = of_new.maximum_version = version
    welcome = world.tls_client(of_new)
    welcome.shake_hands()
    assert world.sessions[-1].connection.certificate_name == "bob"


# ---- time and place


@pytest.mark.parametrize("begun", [0, 1, 100])
def test_a_handshake_has_the_time_of_the_whole_greeting(tls_world: World, authorities: Authorities, begun: int) -> None:
    client = tls_world.tls_client(authorities.client())
    client.tries_handshake()
    client.send_records(client.records()[:begun])
    tls_world.advance(29.9)
    assert not client.is_gone
    with capture_logs() as logs:
        tls_world.advance(0.2)
    assert client.is_gone
    assert client.transport.was_aborted
    assert client.transport.written == b"", "before TLS stands there is no word"
    (line,) = logs
    assert (line["cause"], line["detail"]) == (
        "handshake_timeout",
        "not connected after 30 s: its TLS handshake is not over",
    )


def test_the_time_goes_on_behind_the_handshake(tls_world: World, authorities: Authorities) -> None:
    client = tls_world.tls_client(authorities.client())
    tls_world.advance(20)
    client.shake_hands()
    tls_world.advance(10.1)
    assert client.heard_names() == ["ERROR"]
    assert client.is_gone


def test_a_client_that_comes_and_goes_without_a_word_is_no_failure(tls_world: World, authorities: Authorities) -> None:
    """Load balancers look so whether a port is open."""
    with capture_logs() as logs:
        tls_world.tls_client(authorities.client()).half_close()
        tls_world.tls_client(authorities.client()).leave()
    assert +tls_world.counters.connections_ended == {"client_closed": 2}
    assert not +tls_world.counters.tls_failures
    assert not logs


def test_a_client_without_a_place_is_closed_before_any_handshake(make_tls: Make, authorities: Authorities) -> None:
    world = make_tls(admission={"max_connections_per_address": 1})
    secured(world, authorities)
    client = world.tls_client(authorities.client())
    assert client.is_gone
    assert client.transport.written == b""
    assert +world.counters.connections_ended == {"too_many_connections": 1}
    other = world.tls_client(authorities.client(), "192.0.2.8")
    other.shake_hands()
    assert not other.is_gone


def test_a_process_that_ends_says_nothing_to_a_client_without_tls(tls_world: World, authorities: Authorities) -> None:
    client = tls_world.tls_client(authorities.client())
    client.tries_handshake()
    tls_world.loop.run(tls_world.sessions[-1].shut_down)
    assert client.is_gone
    assert client.transport.written == b""


def test_a_client_over_tls_on_the_plain_port_is_told_apart(tls_world: World, authorities: Authorities) -> None:
    client = tls_world.client()
    hello = tls_world.tls_client(authorities.client())
    hello.tries_handshake()
    with capture_logs() as logs:
        client.send_bytes(hello.records())
    assert [line["cause"] for line in logs] == ["frame_error"]
    assert "a TLS client on a plain port" in logs[0]["detail"]
    assert +tls_world.counters.frame_errors == {"client tls_hello": 1}


def test_a_peer_that_has_openssl_answer_and_takes_no_answers_is_cut_off(
    tls_world: World, authorities: Authorities
) -> None:
    """As with KeyUpdate, of which Python's clients cannot send any: what OpenSSL would answer is put there."""
    client, _broker = paired(tls_world, authorities)
    client.stop_reading()
    outgoing = tls_world.engine.shared.tls_buffers().outgoing
    for _ in range(20):
        outgoing.write(b"x" * 4096)
        client >> PING
    assert +tls_world.counters.tls_failures == {"client broken": 1}
    tls_world.advance(1)
    assert client.is_gone


# ---- ends


def test_a_half_closed_client_gets_what_is_still_to_come(tls_world: World, authorities: Authorities) -> None:
    client, broker = publishing(tls_world, authorities)
    client >> send(1)
    broker << send(1)
    client.send_records(client.sealed(send(2)) + client.close_notify())
    broker << send(2)
    broker >> [receipt(1), receipt(2)]
    client << [receipt(1), receipt(2)]
    assert broker.transport.is_eof_sent
    broker.half_close()
    assert client.is_gone
    client << NOTHING
    assert client.is_at_end
    assert +tls_world.counters.connections_ended == {"client_closed": 1}


def test_an_end_without_close_notify_is_an_end(tls_world: World, authorities: Authorities) -> None:
    client, broker = publishing(tls_world, authorities)
    client >> send(1)
    broker << send(1)
    client.half_close()
    assert broker.transport.is_eof_sent
    broker >> receipt(1)
    client << receipt(1)


def test_what_was_said_before_the_broker_left_arrives_and_then_close_notify(
    tls_world: World, authorities: Authorities
) -> None:
    client, broker = paired(tls_world, authorities)
    broker >> [PING, PING]
    broker.half_close()
    client << [PING, PING]
    client << NOTHING
    assert client.is_at_end
    assert client.is_gone


def test_a_close_while_the_broker_is_dialled_is_heard_when_it_is_read(
    tls_world: World, authorities: Authorities
) -> None:
    """The end stands behind bytes that wait; it must not overtake them."""
    tls_world.broker_answers = False
    client = secured(tls_world, authorities)
    client.send_records(
        client.sealed(connect(f"{BROKER[0]}:{BROKER[1]}") + producer() + send(1)) + client.close_notify()
    )
    assert not client.is_gone
    broker = tls_world.accept()
    assert broker.heard_names()[:2] == ["CONNECT", "PRODUCER"]


def test_broken_records_end_the_session(tls_world: World, authorities: Authorities) -> None:
    client, broker = paired(tls_world, authorities)
    records = client.sealed(PING) + client.sealed(PING)
    broken = bytearray(records)
    broken[-1] ^= 1
    with capture_logs() as logs:
        client.send_records(bytes(broken))
    broker << PING
    assert [line["cause"] for line in logs] == ["tls_failed"]
    assert "decryption failed or bad record mac" in logs[0]["detail"]
    assert +tls_world.counters.tls_failures == {"client broken": 1}


# ---- limits and backpressure


def test_an_entry_over_the_limit_is_held_and_passes_in_its_time(make_tls: Make, authorities: Authorities) -> None:
    world = make_tls(limits={"topics": {"persistent://acme/shop/orders": {"publish": {"messages": 1}}}})
    client, broker = publishing(world, authorities)
    client >> [send(1), send(2), send(3)]
    broker << send(1)
    world.advance(0.9)
    broker << NOTHING
    world.advance(0.2)
    broker << send(2)
    world.advance(1)
    broker << send(3)


def test_a_client_that_takes_nothing_stops_the_broker_until_it_does(tls_world: World, authorities: Authorities) -> None:
    client, broker = paired(tls_world, authorities)
    client.stop_reading()
    answers = 0
    while broker.is_read:
        broker >> [PING] * 10_000
        answers += 10_000
        assert answers <= 200_000, "the write buffer has a bound"
    waiting = client.transport.get_write_buffer_size()
    assert waiting > 512 * 1024
    assert tls_world.sessions[-1].client.writer.unsent() == waiting, "records are unsent, and nothing else anywhere"
    client.read_on()
    assert broker.is_read
    assert len(client.heard()) == answers


def test_a_client_that_is_not_read_leaves_its_records_in_the_socket(tls_world: World, authorities: Authorities) -> None:
    client, broker = publishing(tls_world, authorities)
    broker.stop_reading()
    for sequence_id in range(1, 30):
        client >> send(sequence_id, size=100_000)
    assert not client.is_read
    assert client.transport.unread > 10
    broker.read_on()
    broker << [send(sequence_id, size=100_000) for sequence_id in range(1, 30)]
    assert client.is_read
