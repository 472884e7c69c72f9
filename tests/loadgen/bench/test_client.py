import socket

import pytest

from loadgen.bench import client, sink
from loadgen.bench.errors import BenchError
from loadgen.bench.sink import CONNECTED, answer_to
from loadgen.bench.stage import Beside
from loadgen.real.process import free_ports
from protocol.commands import body_of, encode, split
from protocol.pulsar_pb2 import BaseCommand, CommandError, MetadataError

TOPIC = "persistent://public/default/t"


def test_a_topic_is_where_the_broker_says(stage, name):
    assert client.broker_of(TOPIC, stage.peers[name].port) == f"127.0.0.1:{stage.sink.port}"


def test_a_greeting_names_the_broker_behind_the_proxy():
    assert split(client.hello("b:1"))[0].connect.proxy_to_broker_url == "b:1"
    assert not split(client.hello())[0].connect.HasField("proxy_to_broker_url")


def test_several_producers_share_a_connection(stage, name, monkeypatch):
    asked = []

    def answering(envelope, port):
        asked.append(envelope)
        return answer_to(envelope, port)

    monkeypatch.setattr(sink, "answer_to", answering)
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
    ("answers", "said"),
    [
        ([CONNECTED, encode(CommandError(request_id=1, error=MetadataError, message="no"))], "ERROR instead of PART"),
        ([CONNECTED], "ended before PARTITIONED_METADATA_RESPONSE came"),
    ],
)
def test_a_refusal_or_an_end_is_an_error(answers, said):
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Beside(lambda: _broker(listener, answers)),
        pytest.raises(BenchError, match=said),
    ):
        client.broker_of(TOPIC, listener.getsockname()[1])


def test_a_port_without_a_listener_is_told_in_time(stage):
    (port,) = free_ports(0)
    assert not client.wait_listening(port, 0.0)
    assert client.wait_listening(stage.sink.port, 5.0)
