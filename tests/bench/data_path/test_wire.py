"""Frames, the client that asks, and the broker that answers."""

import socket

import pytest

from bench.data_path import wire
from bench.data_path.rows.connections import crowd
from bench.data_path.stage import beside
from bench.data_path.wire import CONNECTED, LoopbackSink, answer_to
from bench.harness import BenchError
from protocol.commands import body_of, encode, split, wrap
from protocol.pulsar_pb2 import (
    BaseCommand,
    CommandError,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    MessageMetadata,
    MetadataError,
)


@pytest.mark.parametrize("size", [100, 1024, 16384])
def test_a_send_has_the_size_asked_for(size):
    frame = wire.send_frame(size, producer_id=3).frame
    envelope, _ = split(frame)
    assert abs(len(frame) - size) <= 4
    assert (envelope.send.producer_id, envelope.send.num_messages) == (3, 1)


@pytest.mark.parametrize("numbered", [wire.send_frame(100), wire.receipt()])
def test_another_sequence_id_fits_where_the_first_one_stands(numbered):
    at, (last,) = numbered.sequence_at, (wire.FIRST_SEQUENCE * 2 - 1,)
    other = bytes([(last >> shift & 0x7F) | 0x80 for shift in (0, 7, 14, 21)] + [last >> 28])
    envelope, _ = split(numbered.frame[:at] + other + numbered.frame[at + 5 :])
    command = envelope.send if envelope.HasField("send") else envelope.send_receipt
    assert command.sequence_id == last


def test_a_message_has_metadata_that_can_be_read():
    frame = wire.message_frame(1024)
    envelope, behind = split(frame)
    size = int.from_bytes(behind[6:10], "big")
    assert abs(len(frame) - 1024) <= 4
    assert envelope.message.consumer_id == wire.CONSUMER_ID
    assert MessageMetadata.FromString(behind[10 : 10 + size]).producer_name == "bench"


TOPIC = "persistent://public/default/t"


def test_several_producers_share_a_connection(stage, name, monkeypatch):
    asked = []

    def answering(envelope, owner):
        asked.append(envelope)
        return answer_to(envelope, owner)

    monkeypatch.setattr(wire, "answer_to", answering)
    (here,), (there,) = stage.producers(stage.peers[name].port, 1, streams=3)
    opened = [body_of(envelope) for envelope in asked if envelope.type == BaseCommand.PRODUCER]
    assert len({command.producer_id for command in opened}) == len(opened) == 3
    assert len({command.topic for command in opened}) == 1
    here.close()
    there.close()


def _broker(listener, answers):
    connection, _ = listener.accept()
    with connection:
        for answer in answers:
            connection.recv(65536)
            connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([CONNECTED, encode(CommandError(request_id=1, error=MetadataError, message="no"))], "ERROR instead of PART"),
        ([CONNECTED], "ended before PARTITIONED_METADATA_RESPONSE came"),
    ],
)
def test_a_refusal_or_an_end_is_an_error(answers, message):
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        beside(lambda: _broker(listener, answers)),
        pytest.raises(BenchError, match=message),
    ):
        wire.broker_of(TOPIC, listener.getsockname()[1])


def test_without_a_producer_there_is_nothing_to_hand_over(monkeypatch):
    monkeypatch.setattr(wire, "_OPENED_S", 0.0)
    with LoopbackSink() as broker, pytest.raises(BenchError, match="no producer"):
        broker.opened()


def test_the_listener_comes_back_when_it_was_lent(stage):
    with crowd(stage, stage.sink.port, 20, 20) as opened:
        assert opened.seconds > 0
    with wire.open_producer(TOPIC, stage.sink.port), stage.sink.opened():
        pass


def owner(topic):
    return 2 if topic.startswith("non-persistent") else 1


@pytest.mark.parametrize(("topic", "port"), [(TOPIC, 1), (f"non-{TOPIC}", 2)])
def test_a_lookup_names_the_broker_of_its_topic(topic, port):
    answer = answer_to(wrap(CommandLookupTopic(topic=topic, request_id=7)), owner)
    assert isinstance(answer, CommandLookupTopicResponse)
    assert answer.broker_service_url == f"pulsar://127.0.0.1:{port}"
