import pytest

from loadgen.standin.broker import Broker
from loadgen.standin.options import BrokerOptions
from loadgen.standin.producing import SEND_WITHOUT_PRODUCER
from loadgen.standin.refusal import UNASKED
from protocol.pulsar_pb2 import (
    CommandCloseProducer,
    CommandProducerSuccess,
    CommandSendReceipt,
    CommandUnsubscribe,
    ProducerAccessMode,
    Schema,
    ServerError,
)
from tests.loadgen.standin.doubles import TOPIC, Peer


@pytest.fixture
def peer():
    return Peer()


def test_each_send_gets_its_receipt_in_order(peer):
    peer.open_producer(7)
    peer.publish(3, producer_id=7)
    receipts = peer.hear()
    assert all(isinstance(receipt, CommandSendReceipt) for receipt in receipts)
    assert [(receipt.producer_id, receipt.sequence_id, receipt.message_id.entry_id) for receipt in receipts] == [
        (7, 0, 0),
        (7, 1, 1),
        (7, 2, 2),
    ]


def test_a_batch_is_one_entry_and_counts_as_its_messages(peer):
    peer.open_producer()
    peer.publish(2, num_messages=50)
    counts = peer.broker.topic(TOPIC).counts
    assert (counts.received_entries, counts.received_messages) == (2, 100)


def test_a_producer_without_a_name_gets_one(peer):
    names = {peer.open_producer(1).producer_name, peer.open_producer(2).producer_name}
    assert len(names) == 2
    assert all(names)


def test_a_name_is_refused_while_another_connection_has_it(peer):
    peer.open_producer(1, producer_name="me")
    other = Peer(peer.broker)
    refused = other.open_producer(1, producer_name="me")
    assert (refused.request_id, refused.error) == (1, ServerError.ProducerBusy)
    peer.connection.lost()
    assert other.open_producer(1, producer_name="me").producer_name == "me"


def test_asking_again_for_an_open_producer_is_answered_again(peer):
    assert peer.open_producer(1).producer_name == peer.open_producer(1).producer_name


def test_a_closed_producers_name_is_free(peer):
    peer.open_producer(1, producer_name="me")
    assert peer.ask(CommandCloseProducer(producer_id=1, request_id=9)).request_id == 9
    assert peer.open_producer(2, producer_name="me").producer_name == "me"


def test_closing_a_producer_that_is_not_open_succeeds(peer):
    assert peer.ask(CommandCloseProducer(producer_id=1, request_id=9)).request_id == 9


def test_a_send_of_no_open_producer_is_dropped_and_counted(peer):
    peer.publish(1, producer_id=5)
    assert peer.hear() == []
    assert peer.broker.ignored_commands == {SEND_WITHOUT_PRODUCER: 1}


def test_a_full_topic_closes_its_producers_and_lets_them_in_again_when_there_is_room():
    peer = Peer(Broker(BrokerOptions(topic_bytes=600)))
    peer.subscribe(permits=0)
    peer.open_producer(producer_name="me")
    peer.publish(4)
    answers = peer.hear()
    assert [type(answer) for answer in answers[:2]] == [CommandSendReceipt] * 2
    assert answers[2:] == [CommandCloseProducer(producer_id=1, request_id=UNASKED)]
    assert peer.open_producer().error == ServerError.ProducerBlockedQuotaExceededError
    peer.ask(CommandUnsubscribe(consumer_id=1, request_id=3))
    assert isinstance(peer.open_producer(producer_name="me"), CommandProducerSuccess)


def test_a_schema_gets_its_version(peer):
    schema = Schema(name="a", schema_data=b"{}", type=Schema.Json)
    assert peer.open_producer(1, schema=schema).schema_version == b"\0" * 8
    assert peer.open_producer(2).schema_version == b""


def test_exclusive_access_is_refused_rather_than_promised(peer):
    refused = peer.open_producer(1, producer_access_mode=ProducerAccessMode.Value("Exclusive"))
    assert refused.error == ServerError.NotAllowedError
