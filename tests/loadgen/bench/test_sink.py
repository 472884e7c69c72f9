import pytest

from loadgen.bench import client, sink
from loadgen.bench.errors import BenchError
from loadgen.bench.rows.crowd import crowd
from loadgen.bench.sink import Sink, answer_to
from protocol.commands import wrap
from protocol.pulsar_pb2 import CommandAck, CommandPing, CommandPong, CommandProducer, CommandProducerSuccess

TOPIC = "persistent://public/default/t"


def test_a_producer_is_let_in_and_its_connection_handed_over():
    with Sink() as broker, client.producer(TOPIC, broker.port) as here, broker.opened() as there:
        here.sendall(b"mine")
        assert there.recv(10) == b"mine"


def test_without_a_producer_there_is_nothing_to_hand_over(monkeypatch):
    monkeypatch.setattr(sink, "_PATIENCE_S", 0.0)
    with Sink() as broker, pytest.raises(BenchError, match="no producer"):
        broker.opened()


def test_the_listener_comes_back_when_it_was_lent(stage):
    with crowd(stage, stage.sink.port, 20, 20) as opened:
        assert opened.seconds > 0
    with client.producer(TOPIC, stage.sink.port), stage.sink.opened():
        pass


def test_pings_are_answered_and_what_needs_no_answer_gets_none():
    assert answer_to(wrap(CommandPing()), 1) == CommandPong()
    assert answer_to(wrap(CommandAck(consumer_id=1, ack_type=CommandAck.Individual)), 1) is None


def test_a_producer_keeps_its_name():
    named = answer_to(wrap(CommandProducer(topic=TOPIC, producer_id=1, request_id=7, producer_name="mine")), 1)
    assert named == CommandProducerSuccess(request_id=7, producer_name="mine")
