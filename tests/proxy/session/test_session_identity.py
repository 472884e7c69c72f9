"""Clients that Sluice verifies, told as conversations: who they are, what their brokers get, and when it ends."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from accesslog.record import ConnectionLine, IntervalLine
from protocol.commands import encode
from protocol.pulsar_pb2 import (
    AuthData,
    AuthenticationError,
    CommandAuthChallenge,
    CommandAuthResponse,
    CommandConnect,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    FeatureFlags,
    NotAllowedError,
    TooManyRequests,
)
from proxy.identity.authenticator import ClientAuthenticator
from proxy.identity.checks import WRONG_ONES
from proxy.session.identity import AHEAD_S, ANSWER_S, REFRESH
from tests.proxy.conversation import NOTHING, Broker, Peer, World
from tests.proxy.identity.keys import NOW, OTHER_SECRET, SECRET, token_files
from tests.proxy.identity.keys import signed as signed_by
from tests.proxy.identity.test_passwords import HASHES, Pending
from tests.proxy.rereading import read_again
from tests.proxy.wire import (
    NO_REQUEST,
    PING,
    TOPIC,
    body,
    connect,
    connected,
    name_of,
    producer,
    producer_success,
    send,
)

OWN = signed_by({"sub": "sluice"})
REFRESHING = FeatureFlags(supports_auth_refresh=True)
Make = Callable[..., World]


def signed(role: str = "billing", expires_in: float | None = None, secret: bytes = b"") -> bytes:
    claims: dict[str, Any] = {"sub": role} | ({} if expires_in is None else {"exp": NOW + expires_in})
    return signed_by(claims, secret) if secret else signed_by(claims)


def shows(token: bytes, **more: Any) -> bytes:
    return connect(auth_method_name="token", auth_data=token, **more)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    worlds: list[World] = []

    def make(*, basic: bool = False, settings: dict[str, Any] | None = None, **more: Any) -> World:
        section = {**token_files(tmp_path), **more}
        if basic:
            (tmp_path / "htpasswd").write_text(f"alice:{HASHES['apr1']}\n")
            (tmp_path / "htpasswd").chmod(0o600)
            section["basic"] = {"htpasswd": str(tmp_path / "htpasswd")}
        world = World(authentication=section, **(settings or {}))
        verifier = verifier_of(world)
        verifier.now = lambda: NOW + world.clock.now / 1e9 - began
        verifier._password_checks._worker = Pending()
        verifier._token_checks._worker = Pending()
        began = world.clock.now / 1e9
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.close()


def verifier_of(world: World) -> ClientAuthenticator:
    assert isinstance(world.engine.identity, ClientAuthenticator)
    return world.engine.identity


def let_in(world: World, token: bytes, **more: Any) -> tuple[Peer, Broker]:
    """A client and its broker, past the handshake."""
    client = world.client()
    client >> shows(token, **more)
    broker = world.dialled()
    assert broker.heard_names() == ["CONNECT"]
    broker >> connected()
    client << connected()
    return client, broker


def is_refused(world: World, client: Peer, reason: str, error: int = AuthenticationError) -> None:
    (frame,) = client.heard()
    refusal = body(frame)
    assert (name_of(frame), refusal.request_id, refusal.error) == ("ERROR", NO_REQUEST, error)
    assert reason in refusal.message
    world.advance(world.config.linger)
    assert client.is_gone


def end_of(world: World) -> ConnectionLine:
    line: ConnectionLine = world.lines(ConnectionLine)[-1]
    return line


def test_the_broker_gets_sluices_own_credentials_and_the_proved_role(make: Make) -> None:
    world = make()
    client = world.client()
    client >> shows(signed(), feature_flags=FeatureFlags(supports_partial_producer=True))
    (frame,) = world.dialled().heard()
    command: CommandConnect = body(frame)
    assert (command.auth_method_name, command.auth_data, command.original_principal) == ("token", OWN, "billing")
    assert not command.HasField("original_auth_data")
    assert not command.HasField("original_auth_method")
    assert command.feature_flags.supports_auth_refresh, "Sluice answers challenges, whatever its client can"
    assert command.feature_flags.supports_partial_producer
    assert (command.client_version, command.protocol_version) == ("test-client", 20)
    assert signed() not in frame
    assert world.counters.authentications == {"token accepted": 1}


def test_the_client_s_own_go_with_it_where_the_broker_is_to_verify_them(make: Make) -> None:
    world = make(forward_credentials=True)
    world.client() >> shows(signed())
    command: CommandConnect = body(world.dialled().heard()[0])
    assert (command.auth_data, command.original_principal) == (OWN, "billing")
    assert (command.original_auth_method, command.original_auth_data) == ("token", signed().decode())


def test_without_credentials_of_its_own_sluice_shows_none(make: Make) -> None:
    world = make(broker={})
    world.client() >> shows(signed())
    command: CommandConnect = body(world.dialled().heard()[0])
    assert not command.HasField("auth_method_name")
    assert not command.HasField("auth_data")
    assert command.original_principal == "billing"


@pytest.mark.parametrize(
    ("greeting", "reason"),
    [
        (connect(), "shows no authentication; this proxy takes token"),
        (connect(auth_method_name="none"), "'none'"),
        (connect(auth_method_name="basic", auth_data=b"alice:geheim"), "'basic'"),
        (connect(auth_method_name="tls"), "'tls'"),
        (connect(auth_method_name="token", auth_data=b""), "no JSON Web Token"),
        (shows(signed(secret=OTHER_SECRET)), "signature fits no key"),
        (shows(signed(expires_in=0)), "has expired"),
        (shows(signed(), original_principal="admin"), "speaks for others"),
        (shows(signed(), original_auth_data="x"), "speaks for others"),
        (shows(signed(), original_auth_method="token"), "speaks for others"),
        (shows(signed(), proxy_version="7"), "speaks for others"),
    ],
    ids=range(11),
)
def test_whoever_proves_nothing_is_told_so_and_no_broker_hears_of_it(make: Make, greeting: bytes, reason: str) -> None:
    world = make()
    client = world.client()
    client >> [greeting, producer()]
    assert not world.dials
    is_refused(world, client, reason)
    line = end_of(world)
    assert (line.end_cause, line.client_role, line.role_is_proved) == ("authentication_failed", "", False)
    assert sum(world.counters.authentications.values()) == 1
    assert all(label.endswith(" refused") for label in world.counters.authentications)


def test_the_proved_role_is_in_the_access_log(make: Make) -> None:
    world = make()
    client, broker = let_in(world, signed())
    client >> producer()
    broker.heard()
    broker >> producer_success()
    client >> send(0)
    world.advance(2)
    client.leave()
    for line in (world.lines(IntervalLine)[-1], end_of(world)):
        assert (line.client_role, line.role_is_proved) == ("billing", True)


def test_where_brokers_verify_clients_the_role_is_not_proved_here() -> None:
    world = World()
    client, _ = world.pair(auth_method_name="token", auth_data=signed())
    client.leave()
    assert (end_of(world).client_role, end_of(world).role_is_proved) == ("billing", False)
    world.close()


def test_where_brokers_verify_clients_no_client_borrows_the_certificate_of_sluice(tmp_path: Path) -> None:
    """The broker would let it in as Sluice, and believe an `original_principal` of one of its `proxyRoles`."""
    (tmp_path / "own.pem").touch(mode=0o600)
    trustme.CA().issue_cert("sluice.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    broker_tls = {"certificate": str(tmp_path / "own.pem"), "key": str(tmp_path / "own.pem")}
    world = World(broker="pulsar+ssl://192.0.2.1:6651", broker_tls=broker_tls)
    client = world.client()
    client >> connect(auth_method_name="tls", original_principal="admin")
    is_refused(world, client, "the broker would take Sluice's certificate")
    assert not world.dials
    world.close()


def test_a_block_of_a_role_holds_for_whoever_proves_it(make: Make) -> None:
    world = make(settings={"blocks": [{"role": "billing", "reason": "no"}]})
    client = world.client()
    client >> shows(signed())
    assert client.heard_names() == ["CONNECTED"], "as a blocked client is answered"
    assert not world.dials
    other = world.client()
    other >> shows(signed("other"))
    assert len(world.dials) == 1


def test_a_block_of_an_address_saves_the_work_of_verifying(make: Make) -> None:
    world = make(settings={"blocks": [{"address": "192.0.2.7", "reason": "no"}]})
    client = world.client()
    client >> shows(b"whatever")
    assert client.heard_names() == ["CONNECTED"]
    assert not world.counters.authentications


def test_a_limit_of_a_role_counts_whoever_proves_it(make: Make) -> None:
    world = make(settings={"limits": {"roles": {"billing": {"publish": {"messages": 1}}}}})
    client, broker = let_in(world, signed())
    client >> [producer()]
    broker.heard()
    broker >> producer_success()
    client >> [send(0), send(1), send(2)]
    assert len(broker.heard()) < 3


def test_a_user_is_proved_by_a_password_off_the_loop(make: Make) -> None:
    world = make(basic=True)
    client = world.client()
    client >> [connect(auth_method_name="basic", auth_data=b"alice:geheim"), PING]
    assert not world.dials, "the password is not checked yet"
    assert not client.is_read, "what it says meanwhile waits in its socket"
    world.loop.run(pending(world).go)
    command: CommandConnect = body(world.dialled().heard()[0])
    assert (command.auth_method_name, command.auth_data, command.original_principal) == ("token", OWN, "alice")
    assert client.is_read
    assert world.counters.authentications == {"basic accepted": 1}


def pending(world: World) -> Pending:
    worker = verifier_of(world)._password_checks._worker
    assert isinstance(worker, Pending)
    return worker


def test_a_wrong_password_is_refused_and_many_are_not_even_checked(make: Make) -> None:
    world = make(basic=True)
    for guess in range(WRONG_ONES.burst):
        client = world.client()
        client >> connect(auth_method_name="basic", auth_data=b"alice:guess %d" % guess)
        world.loop.run(pending(world).go)
        is_refused(world, client, "the user is not known, or the password is wrong")
        world.clock.now -= round(world.config.linger * 1e9)  # as if all had come at once
    client = world.client()
    client >> connect(auth_method_name="basic", auth_data=b"alice:geheim")
    is_refused(world, client, "try again", TooManyRequests)
    assert end_of(world).end_cause == "authentication_busy"
    assert world.counters.authentications == {"basic refused": WRONG_ONES.burst, "basic busy": 1}


@pytest.mark.parametrize("ends", [Peer.leave, Peer.half_close, "deadline"])
def test_a_client_that_ends_while_its_password_waits_leaves_nothing(make: Make, ends: Any) -> None:
    world = make(basic=True)
    client = world.client()
    client >> connect(auth_method_name="basic", auth_data=b"alice:geheim")
    if ends == "deadline":
        world.advance(world.config.handshake_timeout)
        assert end_of(world).end_cause == "handshake_timeout"
    else:
        ends(client)
    world.loop.run(pending(world).go)
    assert not world.dials


def test_a_certificate_that_the_listener_verified_names_the_role(make: Make, tmp_path: Path) -> None:
    ca = trustme.CA()
    names = {name: str(tmp_path / name) for name in ("certificate", "key", "client_ca")}
    own = ca.issue_cert("sluice")
    own.cert_chain_pems[0].write_to_path(names["certificate"])
    own.private_key_pem.write_to_path(names["key"])
    ca.cert_pem.write_to_path(names["client_ca"])
    world = make(tls=True, settings={"tls": names, "listen": ["pulsar://127.0.0.1:0", "pulsar+ssl://127.0.0.1:0"]})
    client = world.client()
    world.sessions[0].connection.certificate_name = "billing"
    client >> connect(auth_method_name="tls", auth_data=b"")
    assert body(world.dialled().heard()[0]).original_principal == "billing"
    other = world.client()
    other >> connect(auth_method_name="tls", auth_data=b"")
    is_refused(world, other, "no certificate that this listener has verified")


def test_lookups_for_somebody_else_are_refused(make: Make) -> None:
    """A broker would believe for whom one of its `proxyRoles` says that it asks."""
    world = make()
    client, broker = let_in(world, signed())
    for command in (CommandLookupTopic, CommandPartitionedTopicMetadata):
        client >> encode(command(topic=TOPIC, request_id=1, original_principal="admin"))
        (frame,) = client.heard()
        assert body(frame).error == NotAllowedError
        client >> encode(command(topic=TOPIC, request_id=1))
        assert len(broker.heard()) == 1


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        (shows(signed("admin")), "client second_connect"),
        (encode(CommandAuthResponse(response=AuthData(auth_data=signed("admin")))), "client unasked_auth_response"),
    ],
    ids=["second connect", "answer to nobody"],
)
@pytest.mark.parametrize("when", ["behind its CONNECT", "later"])
def test_a_client_that_says_once_more_who_it_is_is_disconnected(
    make: Make, command: bytes, cause: str, when: str
) -> None:
    world = make()
    if when == "later":
        client, broker = let_in(world, signed())
        client >> command
    else:
        client = world.client()
        client >> [shows(signed()), command]
        broker = world.dialled()
        assert broker.heard_names() == ["CONNECT"]
    assert broker.heard() == []
    assert world.counters.frame_errors == {cause: 1}


def challenge(token: bytes = REFRESH) -> bytes:
    """As a broker asks."""
    return encode(CommandAuthChallenge(server_version="b", challenge=AuthData(auth_data=token), protocol_version=20))


def answer(token: bytes, method: str = "token") -> bytes:
    return encode(CommandAuthResponse(response=AuthData(auth_method_name=method, auth_data=token)))


def test_a_broker_that_challenges_gets_sluices_credentials_of_that_moment(make: Make, tmp_path: Path) -> None:
    world = make()
    client, broker = let_in(world, signed())
    newer = signed_by({"sub": "sluice", "exp": NOW * 2})
    (tmp_path / "sluice.token").write_bytes(newer)
    read_again(verifier_of(world))()
    broker >> challenge()
    (frame,) = broker.heard()
    assert name_of(frame) == "AUTH_RESPONSE"
    assert (body(frame).response.auth_method_name, body(frame).response.auth_data) == ("token", newer)
    client << NOTHING
    client >> PING
    broker << PING


def test_a_challenge_before_connected_is_answered_too(make: Make) -> None:
    world = make(forward_credentials=True)
    client = world.client()
    client >> shows(signed())
    broker = world.dialled()
    broker.heard()
    broker >> challenge()
    assert body(broker.heard()[0]).response.auth_data == OWN
    broker >> connected()
    client << connected()
    broker >> challenge()
    assert body(broker.heard()[0]).response.auth_data == signed(), "now it is the client's that the broker doubts"


def test_where_brokers_verify_clients_challenges_go_through() -> None:
    world = World()
    client, broker = world.pair()
    broker >> challenge()
    client << challenge()
    client >> answer(b"fresh")
    broker << answer(b"fresh")
    world.close()


def test_a_client_is_asked_for_a_newer_token_before_its_own_ends(make: Make) -> None:
    world = make()
    client, broker = let_in(world, signed(expires_in=300), feature_flags=REFRESHING)
    world.advance(300 - AHEAD_S - 1)
    client << NOTHING
    world.advance(1)
    (frame,) = client.heard()
    assert name_of(frame) == "AUTH_CHALLENGE"
    assert (body(frame).challenge.auth_method_name, body(frame).challenge.auth_data) == ("token", REFRESH)
    client >> answer(signed(expires_in=600))
    world.advance(AHEAD_S + 100)
    client << NOTHING
    assert not client.is_gone
    broker << NOTHING
    world.advance(600 - 300 - 100 - AHEAD_S)
    assert client.heard_names() == ["AUTH_CHALLENGE"]
    assert world.counters.authentications == {"token accepted": 1, "token refreshed": 1}


def test_a_client_that_has_no_newer_token_yet_is_asked_again_when_its_own_ends(make: Make) -> None:
    """Clients may keep a token until it has expired: brokers ask at that moment only."""
    world = make()
    token = signed(expires_in=300)
    client, _ = let_in(world, token, feature_flags=REFRESHING)
    world.advance(300 - AHEAD_S)
    assert client.heard_names() == ["AUTH_CHALLENGE"]
    client >> answer(token)
    world.advance(AHEAD_S - 1)
    client << NOTHING
    world.advance(1)
    assert client.heard_names() == ["AUTH_CHALLENGE"]
    client >> answer(signed(expires_in=900))
    world.advance(ANSWER_S * 2)
    assert not client.is_gone


@pytest.mark.parametrize("answers", [False, True])
def test_a_session_ends_with_its_token_if_there_is_no_newer_one(make: Make, answers: bool) -> None:  # noqa: FBT001
    world = make()
    token = signed(expires_in=300)
    client, broker = let_in(world, token, feature_flags=REFRESHING)
    world.advance(300)
    assert client.heard_names() == ["AUTH_CHALLENGE"], "one that is not answered is not repeated"
    if answers:
        client >> answer(token)
    else:
        world.advance(ANSWER_S - 1)
        client << NOTHING
        world.advance(1)
    is_refused(world, client, "expired")
    assert end_of(world).end_cause == "authentication_expired"
    assert broker.is_gone


def test_a_client_that_cannot_refresh_ends_with_its_token(make: Make) -> None:
    world = make()
    client, _ = let_in(world, signed(expires_in=300))
    world.advance(299)
    client << NOTHING
    world.advance(1)
    is_refused(world, client, "has expired, and it has shown no newer one")
    assert world.counters.authentications == {"token accepted": 1, "token expired": 1}


def test_a_token_that_expires_before_the_broker_answers_ends_with_it(make: Make) -> None:
    world = make()
    client = world.client()
    client >> shows(signed(expires_in=5))
    world.advance(10)
    world.dialled() >> connected()
    world.advance(1)
    client << [connected(), "ERROR"]


def test_short_tokens_are_not_asked_for_without_end(make: Make) -> None:
    world = make()
    client, _ = let_in(world, signed(expires_in=2), feature_flags=REFRESHING)
    asked = 0
    for second in range(60):
        world.advance(1)
        if client.heard_names() == ["AUTH_CHALLENGE"]:
            asked += 1
            client >> answer(signed(expires_in=second + 3))
    assert 0 < asked <= 60
    assert not client.is_gone


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (answer(signed("admin", 900)), "with another role"),
        (answer(signed(expires_in=900, secret=OTHER_SECRET)), "signature"),
        (answer(b"alice:geheim", "basic"), "another auth method"),
        (answer(b""), "no JSON Web Token"),
    ],
    ids=range(4),
)
def test_an_answer_that_proves_nothing_ends_the_session(make: Make, reply: bytes, why: str) -> None:
    world = make()
    client, broker = let_in(world, signed(expires_in=300), feature_flags=REFRESHING)
    world.advance(300 - AHEAD_S)
    client.heard()
    client >> reply
    is_refused(world, client, why)
    assert end_of(world).end_cause == "authentication_failed"
    assert broker.heard() == []


def assert_passed_on(client: Peer, broker: Broker) -> None:
    """The newer token with which the client answers is what the broker gets."""
    newer = signed(expires_in=900)
    client >> answer(newer)
    (frame,) = broker.heard()
    assert body(frame).response.auth_data == newer


def test_a_broker_that_doubts_an_expired_client_waits_for_its_newer_token(make: Make) -> None:
    world = make(forward_credentials=True)
    client, broker = let_in(world, signed(expires_in=300), feature_flags=REFRESHING)
    world.advance(300)
    assert client.heard_names() == ["AUTH_CHALLENGE"]
    broker >> challenge()
    broker << NOTHING
    assert_passed_on(client, broker)


def test_a_broker_whose_clock_is_ahead_gets_a_newer_token_than_the_one_it_doubts(make: Make) -> None:
    world = make(forward_credentials=True)
    client, broker = let_in(world, signed(expires_in=300), feature_flags=REFRESHING)
    broker >> challenge()
    broker << NOTHING
    assert client.heard_names() == ["AUTH_CHALLENGE"]
    broker >> challenge()
    client << NOTHING
    assert_passed_on(client, broker)


def test_changed_files_hold_for_whoever_comes_then_and_open_sessions_go_on(make: Make, tmp_path: Path) -> None:
    world = make()
    client, broker = let_in(world, signed())
    token_files(tmp_path, OTHER_SECRET)
    read_again(verifier_of(world))()
    client >> PING
    broker << PING
    newcomer, other = world.client(), world.client()
    newcomer >> shows(signed(secret=OTHER_SECRET))
    assert body(world.dialled().heard()[0]).auth_data == signed_by({"sub": "sluice"}, OTHER_SECRET)
    other >> shows(signed())
    is_refused(world, other, "signature")


def test_a_redirected_lookup_is_followed_with_sluices_credentials_of_that_moment(make: Make, tmp_path: Path) -> None:
    world = make()
    let_in(world, signed())
    newer = signed_by({"sub": "sluice", "exp": NOW * 2})
    (tmp_path / "sluice.token").write_bytes(newer)
    read_again(verifier_of(world))()
    command: CommandConnect = body(world.sessions[0]._connect_again())
    assert (command.auth_data, command.original_principal) == (newer, "billing")


def many_keys(folder: Path) -> dict[str, Any]:
    """More keys than a token is tried with in the loop; the last one signs."""
    keys = [{"kty": "oct", "k": base64.urlsafe_b64encode(bytes([number]) * 64).decode()} for number in range(9)]
    keys.append({"kty": "oct", "k": base64.urlsafe_b64encode(SECRET).decode()})
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))
    (folder / "keys.json").chmod(0o600)
    return {"token": {"jwks": str(folder / "keys.json")}}


def token_checks(world: World) -> Pending:
    worker = verifier_of(world)._token_checks._worker
    assert isinstance(worker, Pending)
    return worker


def test_token_for_many_keys_is_tried_outside_of_the_loop(make: Make, tmp_path: Path) -> None:
    world = make(**many_keys(tmp_path))
    client = world.client()
    client >> [shows(signed()), PING]
    assert not world.dials
    assert not client.is_read, "what it says meanwhile waits in its socket"
    world.loop.run(token_checks(world).go)
    assert body(world.dialled().heard()[0]).original_principal == "billing"
    again = world.client()
    again >> shows(signed())
    assert body(world.dialled().heard()[0]).original_principal == "billing", "it is remembered"
    assert token_checks(world).done == 1


def test_wrong_tokens_of_an_address_are_soon_not_tried(make: Make, tmp_path: Path) -> None:
    world = make(**many_keys(tmp_path))
    for number in range(WRONG_ONES.burst + 20):
        client = world.client()
        client >> shows(signed(f"r{number}", secret=OTHER_SECRET))
        world.loop.run(token_checks(world).go)
    assert token_checks(world).done == WRONG_ONES.burst
    assert world.counters.authentications == {"token refused": WRONG_ONES.burst, "token busy": 20}


def test_newer_token_for_many_keys_is_tried_outside_of_the_loop(make: Make, tmp_path: Path) -> None:
    world = make(**many_keys(tmp_path))
    client = world.client()
    client >> shows(signed(expires_in=120), feature_flags=REFRESHING)
    world.loop.run(token_checks(world).go)
    broker = world.dialled()
    broker.heard()
    broker >> connected()
    client.heard()
    world.advance(61)
    assert client.heard_names() == ["AUTH_CHALLENGE"]
    client >> answer(signed(expires_in=1000))
    assert world.counters.authentications == {"token accepted": 1}
    world.loop.run(token_checks(world).go)
    assert world.counters.authentications == {"token accepted": 1, "token refreshed": 1}
