"""Whatever a client sends arrives byte for byte, once, in order."""

import pulsar
import pytest

from tests.real.pulsar_rest import PulsarRest
from tests.real.traffic import Sender, digests, open_sender, payload, receive, sent_by

pytestmark = pytest.mark.real

COMPRESSIONS = {
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


def send_and_receive(client: pulsar.Client, topic: str, contents: list[bytes], **options: object) -> Sender:
    """Through one producer and one consumer; returns the sender."""
    consumer = client.subscribe(topic, "check")
    sender = open_sender(client, topic, "p", **options)
    sender.send_all(contents)
    assert digests(receive(consumer, len(contents))) == sent_by(sender)
    assert len(sender.sent) == len(contents)
    return sender


def test_unbatched_messages_arrive_once_and_in_order(client: pulsar.Client, topic: str, rest: PulsarRest) -> None:
    send_and_receive(client, topic, [payload("p", index) for index in range(2000)])
    assert rest.entries(topic) == 2000


def test_messages_of_every_small_size_arrive(client: pulsar.Client, topic: str) -> None:
    send_and_receive(client, topic, [payload("p", size)[:size] for size in range(300)])


def test_batches_arrive_as_batches(client: pulsar.Client, topic: str, rest: PulsarRest) -> None:
    contents = [payload("p", index) for index in range(5000)]
    send_and_receive(client, topic, contents, batching_enabled=True, batching_max_messages=100)
    assert rest.stats(topic)["msgInCounter"] == 5000
    assert rest.entries(topic) < 500


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_compressed_messages_arrive_and_stay_compressed(
    client: pulsar.Client, topic: str, rest: PulsarRest, kind: str
) -> None:
    contents = [payload("p", index, 50) * 100 for index in range(100)]
    send_and_receive(client, topic, contents, compression_type=COMPRESSIONS[kind])
    assert rest.stats(topic)["bytesInCounter"] < sum(map(len, contents)) / 5


def test_compressed_batches_arrive(client: pulsar.Client, topic: str) -> None:
    contents = [payload("p", index) for index in range(1000)]
    send_and_receive(client, topic, contents, batching_enabled=True, compression_type=COMPRESSIONS["zstd"])


def test_messages_just_under_the_broker_s_maximum_arrive(client: pulsar.Client, topic: str) -> None:
    send_and_receive(client, topic, [payload("p", index, 4_900_000) for index in range(5)])


def test_a_message_over_the_broker_s_maximum_is_refused_and_harms_nobody(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(payload("p", 0, 6_000_000))
    send_and_receive(client, topic, [payload("q", 0)])


def test_a_chunked_message_of_12_mb_arrives_whole(client: pulsar.Client, topic: str, rest: PulsarRest) -> None:
    contents = [payload("p", index, size) for index, size in enumerate((12_000_000, 100, 12_000_000))]
    send_and_receive(client, topic, contents, chunking_enabled=True)
    assert rest.entries(topic) == 7
