"""What a fleet's links use: exclusive access to a topic, non-persistent topics, compacted reading, missing namespaces.

The order of events is that of AbstractTopic.incrementTopicEpochIfNeeded and ServerCnx.handleSend (pulsar-broker 4.0.8).
"""

import pytest

from loadgen.standin.broker import BrokerOptions, StandinBroker
from protocol.commands import encode_with_payload
from protocol.pulsar_pb2 import (
    CommandCloseProducer,
    CommandError,
    CommandFlow,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandProducerSuccess,
    CommandSend,
    CommandSubscribe,
    CommandSuccess,
    MessageIdData,
    ProducerAccessMode,
    ServerError,
)
from tests.loadgen.standin.doubles import TOPIC, Peer, payload

EXCLUSIVE, FENCING, WAITING = map(ProducerAccessMode.Value, ("Exclusive", "ExclusiveWithFencing", "WaitForExclusive"))
PASSING = "non-persistent://public/sluice/front-grants"
EARLIEST = MessageIdData(ledger_id=2**64 - 1, entry_id=2**64 - 1)


def send(peer, data=b"x", producer_id=1, **metadata):
    """Publish one message with this content and metadata."""
    behind = payload(data, uncompressed_size=len(data), **metadata)
    peer.connection.receive(encode_with_payload(CommandSend(producer_id=producer_id, sequence_id=1), behind))


def ask_access(peer, mode=WAITING, producer_id=1, **more):
    return peer.open_producer(producer_id, producer_access_mode=mode, **more)


@pytest.fixture
def broker():
    return StandinBroker(BrokerOptions())


@pytest.fixture
def peers(broker):
    return [Peer(broker) for _ in range(4)]


def test_producers_get_exclusive_access_in_the_order_they_ask(peers):
    answers = [ask_access(peer) for peer in peers]
    assert [(answer.producer_ready, answer.HasField("topic_epoch")) for answer in answers] == [
        (True, True),
        *[(False, False)] * 3,
    ]
    peers[2].connection.lost()
    peers[0].connection.lost()
    assert [[(answer.producer_ready, answer.topic_epoch) for answer in peer.hear()] for peer in peers[1::2]] == [
        [(True, 1)],
        [],
    ]
    peers[1].say(CommandCloseProducer(producer_id=1, request_id=2))
    assert [answer.topic_epoch for answer in peers[3].hear()] == [2]


@pytest.mark.parametrize("mode", [EXCLUSIVE, FENCING, WAITING])
def test_others_are_refused_while_one_producer_is_exclusive(peers, mode):
    assert ask_access(peers[0], mode).producer_ready
    assert peers[1].open_producer().error == ServerError.ProducerBusy
    assert ask_access(peers[1], EXCLUSIVE).error == ServerError.ProducerFenced


def test_exclusive_access_is_refused_beside_a_shared_producer(peers):
    peers[0].open_producer()
    assert ask_access(peers[1], EXCLUSIVE).error == ServerError.ProducerFenced
    assert not ask_access(peers[1], WAITING).producer_ready
    peers[0].connection.lost()
    assert [answer.producer_ready for answer in peers[1].hear()] == [True]


def test_taking_access_fences_out_the_holder_and_all_that_wait(peers):
    holder, *waiting, taker = peers
    for peer in (holder, *waiting):
        ask_access(peer)
    assert ask_access(taker, FENCING).topic_epoch == 1
    assert holder.hear() == []
    assert [[answer.error for answer in peer.hear()] for peer in waiting] == [[ServerError.ProducerFenced]] * 2
    send(holder)
    assert holder.link.aborted
    holder.connection.lost()
    send(taker)
    assert [type(answer).__name__ for answer in taker.hear()] == ["CommandSendReceipt"]


def test_a_producer_that_was_fenced_out_can_ask_again(peers):
    ask_access(peers[0])
    ask_access(peers[1], FENCING)
    assert not ask_access(peers[0]).producer_ready
    peers[1].connection.lost()
    assert [answer.topic_epoch for answer in peers[0].hear()] == [2]


def test_a_producer_of_an_earlier_epoch_is_fenced(peers):
    assert ask_access(peers[0], EXCLUSIVE).topic_epoch == 0
    peers[0].connection.lost()
    assert ask_access(peers[1], EXCLUSIVE).topic_epoch == 1
    peers[1].connection.lost()
    assert ask_access(peers[2], EXCLUSIVE, topic_epoch=0).error == ServerError.ProducerFenced
    assert ask_access(peers[2], EXCLUSIVE, topic_epoch=1).topic_epoch == 1


def test_a_send_of_a_producer_in_line_ends_its_connection(peers):
    ask_access(peers[0])
    ask_access(peers[1])
    send(peers[1])
    assert peers[1].link.aborted


def test_a_non_persistent_topic_keeps_no_message(broker, peers):
    sender, early, stalled, late = peers
    sender.open_producer(1, PASSING)
    for consumer, permits in ((early, 1), (stalled, 0)):
        consumer.subscribe(
            topic=PASSING,
            subscription=f"s{permits}",
            durable=False,
            sub_type=CommandSubscribe.Exclusive,
            permits=permits,
        )
    send(sender)
    send(sender)
    late.subscribe(topic=PASSING, subscription="late", initial_position=CommandSubscribe.Earliest)
    assert [len(peer.entry_ids()) for peer in (early, stalled, late)] == [1, 0, 0]
    log = broker.topic(PASSING).log
    assert (log.kept_bytes, log.next_id) == (0, 2)


def read_compacted(peer, topic=TOPIC, **more):
    return peer.subscribe(
        topic=topic,
        subscription="reader",
        durable=False,
        sub_type=CommandSubscribe.Exclusive,
        read_compacted=True,
        start_message_id=EARLIEST,
        **more,
    )


def test_a_compacted_topic_reads_the_last_of_each_key(peers):
    sender, keeper, reader, _ = peers
    sender.open_producer()
    keeper.subscribe(subscription="keeper", initial_position=CommandSubscribe.Earliest, permits=0)
    for key, data in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("b", b"")):
        send(sender, data, partition_key=key)
    send(sender, b"without a key")
    assert isinstance(read_compacted(reader, permits=0), CommandSuccess)
    send(sender, b"5", partition_key="c")
    reader.say(CommandFlow(consumer_id=1, message_permits=10))
    assert reader.entry_ids() == [2, 3, 6]


@pytest.mark.parametrize(
    ("topic", "sub_type"), [(PASSING, CommandSubscribe.Exclusive), (TOPIC, CommandSubscribe.Shared)]
)
def test_compacted_reading_is_refused_where_a_broker_refuses_it(peers, topic, sub_type):
    request = {"topic": topic, "sub_type": sub_type, "read_compacted": True, "durable": False}
    assert peers[0].subscribe(permits=0, **request).error == ServerError.NotAllowedError


def test_topics_of_a_missing_namespace_are_refused():
    peer = Peer(StandinBroker(BrokerOptions(missing_namespaces=frozenset({"public/sluice"}))))
    answer = peer.ask(CommandLookupTopic(topic=PASSING, request_id=1))
    assert (answer.response, answer.error) == (CommandLookupTopicResponse.Failed, ServerError.TopicNotFound)
    refused = peer.open_producer(1, PASSING)
    assert isinstance(refused, CommandError)
    assert refused.error == ServerError.TopicNotFound
    assert isinstance(peer.open_producer(2), CommandProducerSuccess)
