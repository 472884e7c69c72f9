"""What a blocked client gets to hear."""

import pytest
from google.protobuf.message import Message

from protocol.commands import SIZES
from protocol.frames import FrameTooLarge, MalformedFrame
from protocol.pulsar_pb2 import (
    CommandAuthResponse,
    CommandGetLastMessageId,
    CommandGetTopicsOfNamespace,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    NotAllowedError,
    ProducerFenced,
)
from proxy.block_rules import Rule, read_key
from proxy.refusals import metadata_refused
from proxy.session.blocking import MOST_AT_ONCE, BlockedClientResponder
from tests.proxy.wire import PING, PONG, as_frame, body, connect, error, lookup, producer, send, subscribe

WHY = "role 'billing' is blocked by Sluice: too loud"


class Client:
    """A client that is turned away."""

    def __init__(self, *, is_tls: bool = False) -> None:
        self.rule: Rule | None = Rule(read_key("role", "billing"), "too loud")
        self.heard: list[bytes] = []
        self.left = 0
        rule = lambda: self.rule  # noqa: E731
        self._turned_away = BlockedClientResponder(connect(), rule, self.heard.append, self._leave, is_tls=is_tls)

    def _leave(self) -> None:
        self.left += 1

    def says(self, *commands: Message | bytes) -> list[bytes]:
        self.heard.clear()
        self._turned_away.feed(b"".join(map(as_frame, commands)))
        return self.heard


def test_it_may_connect_with_its_own_protocol_version() -> None:
    (connected,) = Client().heard
    assert (body(connected).server_version, body(connected).protocol_version) == ("Sluice", 20)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (producer(), error(101, NotAllowedError, WHY)),
        (producer(epoch=1), error(101, ProducerFenced, WHY)),
        (subscribe(), error(307, NotAllowedError, WHY)),
        (CommandPartitionedTopicMetadata(topic="t", request_id=5), metadata_refused(5, NotAllowedError, WHY)),
        (CommandGetTopicsOfNamespace(namespace="a/b", request_id=6), error(6, NotAllowedError, WHY)),
        (CommandGetLastMessageId(consumer_id=1, request_id=7), error(7, NotAllowedError, WHY)),
        (PING, PONG),
    ],
)
def test_each_request_is_refused_in_its_own_form(command: Message | bytes, answer: bytes) -> None:
    assert Client().says(command) == [answer]


def test_a_lookup_leads_back_to_the_proxy_and_to_no_broker() -> None:
    """A producer that was open before then asks for PRODUCER, and can be ended for good."""
    (answer,) = Client().says(lookup(9))
    response = body(answer)
    assert (response.request_id, response.response) == (9, CommandLookupTopicResponse.Connect)
    assert response.proxy_through_service_url
    assert response.broker_service_url == "pulsar://blocked.invalid:6650"


@pytest.mark.parametrize("command", [send(0), PONG, CommandAuthResponse()])
def test_what_wants_no_answer_gets_none(command: Message | bytes) -> None:
    assert Client().says(command) == []


def test_a_request_may_come_in_pieces() -> None:
    client, frame = Client(), producer()
    assert client.says(frame[:9]) == []
    assert client.says(frame[9:]) == [error(101, NotAllowedError, WHY)]


def test_once_it_is_unblocked_it_is_sent_away_unanswered() -> None:
    client = Client()
    client.rule = None
    assert client.says(producer(), producer(2)) == []
    assert client.left == 1


def test_the_reason_is_the_one_in_force() -> None:
    client = Client()
    client.rule = Rule(read_key("role", "billing"), "still")
    assert client.says(producer()) == [error(101, NotAllowedError, "role 'billing' is blocked by Sluice: still")]


def test_what_it_may_make_the_proxy_keep_is_bounded() -> None:
    with pytest.raises(FrameTooLarge):
        Client().says(send(0, size=70_000))


def test_what_is_no_command_ends_its_connection() -> None:
    with pytest.raises(MalformedFrame):
        Client().says(SIZES.pack(7, 3) + b"\xff\xff\xff")


def test_of_many_requests_some_are_answered_in_each_turn() -> None:
    client = Client()
    asked = b"".join([PING] * (2 * MOST_AT_ONCE + 5))
    turned_away = client._turned_away
    client.heard.clear()
    assert [turned_away.feed(asked), turned_away.feed(b""), turned_away.feed(b"")] == [True, True, False]
    assert client.heard == [PONG] * (2 * MOST_AT_ONCE + 5)
