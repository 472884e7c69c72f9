"""Real sockets: one loop holds the broker and its raw clients."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loadgen.standin.broker import BrokerOptions, StandinBroker
from loadgen.standin.server import context_of, listen
from protocol.commands import body_of, encode, encode_with_payload, split
from protocol.endpoint import Endpoint, host_port
from protocol.frames import FrameCutter
from protocol.pulsar_pb2 import (
    CommandConnect,
    CommandConnected,
    CommandFlow,
    CommandLookupTopic,
    CommandMessage,
    CommandPing,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
)
from tests.loadgen.standin.conftest import new_client, running_broker
from tests.loadgen.standin.doubles import TOPIC, payload

BROKER = [sys.executable, "-m", "sluice", "broker"]

MB = 1024 * 1024


class RawClient:
    """A client that reads only when told to."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._cutter = FrameCutter(2**31)
        self._heard = []

    async def say(self, *frames):
        self._writer.write(b"".join(frames))
        await self._writer.drain()

    async def hear(self):
        """The next command, None at the connection's end."""
        while not self._heard:
            chunk = await self._reader.read(MB)
            if not chunk:
                return None
            self._heard += [body_of(split(frame)[0]) for frame in self._cutter.feed(chunk)]
        return self._heard.pop(0)

    async def hear_until(self, kind):
        while not isinstance(answer := await self.hear(), kind):
            assert answer is not None
        return answer


@asynccontextmanager
async def serving(keep_alive_s=30.0):
    """A broker and a way to connect to it."""
    broker = StandinBroker(BrokerOptions())
    server = await listen(broker, Endpoint("pulsar", "127.0.0.1", 0), keep_alive_s)
    writers = []

    async def connect():
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writers.append(writer)
        client = RawClient(reader, writer)
        await client.say(encode(CommandConnect(client_version="raw", protocol_version=20)))
        await client.hear_until(CommandConnected)
        return client

    try:
        yield broker, connect
    finally:
        server.close()
        for writer in writers:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def subscribe(client, permits):
    await client.say(
        encode(
            CommandSubscribe(
                topic=TOPIC, subscription="s", sub_type=CommandSubscribe.Shared, consumer_id=1, request_id=1
            )
        ),
        encode(CommandFlow(consumer_id=1, message_permits=permits)),
    )


async def publish(client, count, size):
    await client.say(encode(CommandProducer(topic=TOPIC, producer_id=1, request_id=1)))
    await client.hear()
    for number in range(count):
        send = CommandSend(producer_id=1, sequence_id=number)
        await client.say(encode_with_payload(send, payload(b"x" * size)))


async def test_lookups_name_the_address_that_the_client_came_by():
    async with serving() as (_, connect):
        client = await connect()
        await client.say(encode(CommandLookupTopic(topic="t", request_id=1)))
        answer = await client.hear()
        address = host_port(*client._writer.get_extra_info("peername")[:2])
        assert answer.broker_service_url == f"pulsar://{address}"


@pytest.mark.parametrize(
    ("scheme", "files", "words"),
    [
        ("pulsar", ("broker.pem", None), "go together"),
        ("pulsar", (None, "broker.key"), "go together"),
        ("pulsar+ssl", (None, None), "go together"),
        ("pulsar+ssl", ("none.pem", None), "none.pem: give a PEM certificate and its key"),
    ],
)
def test_tls_is_nothing_halved(scheme, files, words):
    with pytest.raises((ValueError, OSError), match=words):
        context_of(Endpoint(scheme, "127.0.0.1", 0), *(name and Path(name) for name in files))


async def test_a_consumer_that_does_not_read_costs_a_bounded_buffer():
    async with serving() as (broker, connect):
        consumer, producer = await connect(), await connect()
        await subscribe(consumer, permits=1_000_000)
        await publish(producer, count=64, size=MB)
        for _ in range(64):
            await producer.hear()
        counts = broker.topic(TOPIC).counts
        assert counts.received_entries == 64
        assert counts.delivered_entries < 32
        for _ in range(64):
            await consumer.hear_until(CommandMessage)
        assert counts.delivered_entries == 64


async def test_the_broker_pings_and_drops_who_never_answers():
    async with serving(keep_alive_s=0.05) as (broker, connect):
        client = await connect()
        await subscribe(client, permits=1)
        assert await client.hear_until(CommandPing)
        while await client.hear() is not None:
            pass
        assert broker.topic(TOPIC)._subscriptions["s"].consumers == []


async def test_rubbish_ends_its_own_connection_and_no_other(capsys):
    async with serving() as (_, connect):
        client, other = await connect(), await connect()
        await client.say(b"\xff" * 100)
        assert await client.hear() is None
        await other.say(encode(CommandPing()))
        assert await other.hear() is not None
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker_at_once_and_leaves_the_counts(counts_file, signal_number):
    with running_broker("--counts", str(counts_file)) as (process, address):
        client = new_client(address)
        consumer = client.subscribe("t", "s")
        producer = client.create_producer("t")
        for _ in range(10):
            producer.send(b"x")
        for _ in range(10):
            consumer.receive(60_000)
        process.send_signal(signal_number)
        assert process.wait(timeout=60) == 0
        client.close()
    (line,) = counts_file.read_text().splitlines()
    counts = json.loads(line)["topics"]["persistent://public/default/t"]
    assert (counts["received_messages"], counts["delivered_messages"]) == (10, 10)
    assert counts["received_bytes"] == counts["delivered_bytes"] > 10


def test_json_has_the_counts_alone_on_standard_output(tmp_path):
    counts = tmp_path / "counts.json"
    command = [*BROKER, "--listen", "127.0.0.1:0", "--json", "--counts", str(counts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().rpartition(" ")[2].strip()
        process.terminate()
        out, _ = process.communicate(timeout=60)
    assert json.loads(out) == {"listen": address, "counts_file": str(counts), "topics": {}, "ignored_commands": {}}


def test_a_producer_goes_on_after_the_broker_was_restarted():
    with running_broker() as (_, address):
        client = new_client(address)
        producer = client.create_producer("t")
        before = producer.send(b"x")
    with running_broker(listen=address):
        after = producer.send(b"y")
        client.close()
    assert after.ledger_id() > before.ledger_id()


def failing(*options):
    command = [sys.executable, "-m", "sluice", "broker", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_fleets_are_named_by_the_help_and_at_the_start():
    help_text = " ".join(subprocess.run([*BROKER, "--help"], capture_output=True, text=True, check=True).stdout.split())
    assert "it serves a fleet's topics" in help_text
    with subprocess.Popen([*BROKER, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert line.startswith("stand-in broker for clients and fleets, listening on 127.0.0.1:")


def test_a_port_in_use_is_one_clear_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = failing("--listen", address)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert address in ended.stderr
    assert "in use" in ended.stderr


@pytest.mark.parametrize(
    ("options", "named", "code"),
    [
        (["--listen", "nowhere"], "'nowhere'", 2),
        (["--listen", "127.0.0.1:0", "--partitioned", "t=x"], "'t=x'", 2),
        (["--listen", "127.0.0.1:0", "--counts", "/nonexistent/counts.json"], "/nonexistent", 1),
    ],
    ids=["address", "partitions", "counts"],
)
def test_a_wrong_option_is_one_clear_line(options, named, code):
    ended = failing(*options)
    assert ended.returncode == code
    assert ended.stderr.count("\n") == 1
    assert named in ended.stderr


def test_a_full_topic_makes_its_producer_wait_and_loses_nothing():
    """The consumer is on the same connection, and goes on."""
    data = [bytes([number]) * 4 * MB for number in range(8)]
    with running_broker("--topic-mb", "16") as (_, address):
        client = new_client(address)
        consumer = client.subscribe("t", "s", receiver_queue_size=1)
        producer = client.create_producer("t")
        for content in data:
            producer.send_async(content, None)
        received = []
        for _ in data:
            message = consumer.receive(60_000)
            received.append(message.data())
            consumer.acknowledge(message)
        client.close()
    assert received == data
