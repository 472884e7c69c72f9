"""Producers and consumers of one connection."""

import pytest

from loadgen.standin.broker import BrokerOptions, StandinBroker
from loadgen.standin.entry_log import UNASKED, StoredEntry
from loadgen.standin.streams import (
    MOST_UNSENT_BYTES,
    SEND_WITHOUT_PRODUCER,
    WRITE_AT_BYTES,
    MessageFrames,
    Outbox,
    ReceiptFrames,
)
from loadgen.standin.subscription import Delivery
from protocol.commands import body_of, encode, encode_with_payload, split
from protocol.pulsar_pb2 import (
    CommandAck,
    CommandAckResponse,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandError,
    CommandFlow,
    CommandGetLastMessageId,
    CommandMessage,
    CommandProducerSuccess,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSend,
    CommandSendReceipt,
    CommandSubscribe,
    CommandSuccess,
    CommandUnsubscribe,
    Schema,
    ServerError,
)
from tests.loadgen.standin.doubles import TOPIC, Peer, RecordingLink, message_id, payload


@pytest.fixture
def link():
    return RecordingLink()


def test_frames_of_one_turn_are_one_write_in_their_order(link):
    outbox = Outbox(link)
    for frame in (b"a", b"b", b"c"):
        outbox.put(frame)
    assert link.written == []
    link.turn()
    outbox.put(b"d")
    link.turn()
    assert link.written == [b"abc", b"d"]


def test_a_lot_is_not_gathered_but_written_at_once(link):
    outbox = Outbox(link)
    outbox.put(b"a" * WRITE_AT_BYTES)
    assert [len(data) for data in link.written] == [WRITE_AT_BYTES]
    link.turn()
    assert len(link.written) == 1


@pytest.mark.parametrize(("unsent", "is_cut_off"), [(MOST_UNSENT_BYTES, False), (MOST_UNSENT_BYTES + 1, True)])
def test_a_peer_that_does_not_read_is_cut_off_in_the_end(link, unsent, is_cut_off):
    link.unsent = unsent
    Outbox(link).put(b"a")
    link.turn()
    assert bool(link.aborted) is is_cut_off


def test_receipts_are_the_same_bytes_as_made_anew():
    receipts = ReceiptFrames(producer_id=3, ledger_id=7, partition=2)
    for sequence_id, entry_id in ((5, 0), (6, 900)):
        send = CommandSend(producer_id=3, sequence_id=sequence_id, highest_sequence_id=sequence_id)
        anew = CommandSendReceipt(
            producer_id=3,
            sequence_id=sequence_id,
            message_id=message_id(entry_id, 7, partition=2),
            highest_sequence_id=sequence_id,
        )
        assert receipts.frame(send, entry_id) == encode(anew)


def test_messages_are_the_same_bytes_as_made_anew():
    frames = MessageFrames(consumer_id=4, ledger_id=7, partition=-1)
    for entry_id, count, ack_set in ((0, 2, (1, 2)), (1, 0, ())):
        delivery = Delivery(StoredEntry(entry_id, 1, b"data"), count, ack_set)
        anew = CommandMessage(
            consumer_id=4, message_id=message_id(entry_id, 7), redelivery_count=count, ack_set=ack_set
        )
        assert frames.frame(delivery, epoch=None) == encode_with_payload(anew, b"data")


def test_a_message_carries_its_consumers_epoch():
    frame = MessageFrames(1, 1, -1).frame(Delivery(StoredEntry(0, 1, b""), 0, ()), epoch=9)
    assert body_of(split(frame)[0]).consumer_epoch == 9


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
    peer = Peer(StandinBroker(BrokerOptions(topic_bytes=600)))
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
    assert peer.open_producer(1).schema_version == b"\0" * 8, "the version of the producer that is open"


Individual, Cumulative = CommandAck.Individual, CommandAck.Cumulative


@pytest.fixture
def subscribed():
    """Subscribed to a topic with five entries."""
    peer = Peer()
    peer.open_producer()
    peer.subscribe(permits=0)
    peer.publish(5)
    peer.hear()
    return peer


def flow(peer, permits=1000, consumer_id=1):
    peer.say(CommandFlow(consumer_id=consumer_id, message_permits=permits))


def acknowledge(peer, *ids, ack_type=Individual, **more):
    peer.say(CommandAck(consumer_id=1, ack_type=ack_type, message_id=ids, **more))


def kept(peer):
    log = peer.broker.topic(TOPIC).log
    return list(range(log.first_id, log.next_id))


def test_messages_come_with_their_bytes_unchanged(subscribed):
    flow(subscribed, 2)
    frames = subscribed.hear_frames()
    assert [(body.consumer_id, body.message_id.entry_id, data) for body, data in frames] == [
        (1, 0, payload(b"0")),
        (1, 1, payload(b"1")),
    ]


def test_success_comes_before_any_message_or_change():
    peer = Peer()
    peer.say(
        CommandSubscribe(topic=TOPIC, subscription="s", sub_type=CommandSubscribe.Failover, consumer_id=1, request_id=1)
    )
    assert [type(answer) for answer in peer.hear()] == [CommandSuccess, CommandActiveConsumerChange]


def test_asking_again_for_a_subscribed_consumer_is_answered_again(subscribed):
    assert subscribed.subscribe(1, permits=0).request_id == 2
    assert len(subscribed.broker.topic(TOPIC)._subscriptions["s"].consumers) == 1


def test_acknowledged_entries_are_freed(subscribed):
    acknowledge(subscribed, message_id(1), message_id(0))
    assert kept(subscribed) == [2, 3, 4]
    acknowledge(subscribed, message_id(3), ack_type=Cumulative)
    assert kept(subscribed) == [4]


def test_an_acknowledgement_of_another_ledger_changes_nothing(subscribed):
    acknowledge(subscribed, message_id(4, ledger_id=99), ack_type=Cumulative)
    assert kept(subscribed) == [0, 1, 2, 3, 4]


def test_an_acknowledgement_is_answered_without_its_consumer(subscribed):
    acknowledge(subscribed, message_id(0))
    assert subscribed.hear() == []
    acknowledge(subscribed, message_id(1), request_id=8)
    assert subscribed.hear() == [CommandAckResponse(consumer_id=1, request_id=8)]
    subscribed.ask(CommandUnsubscribe(consumer_id=1, request_id=9))
    acknowledge(subscribed, message_id(2), request_id=10)
    assert subscribed.hear() == [CommandAckResponse(consumer_id=1, request_id=10)]


def test_redelivery_brings_the_epoch_that_it_was_asked_with(subscribed):
    flow(subscribed)
    subscribed.hear()
    subscribed.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=3))
    again = subscribed.hear()
    assert [(message.consumer_epoch, message.redelivery_count) for message in again] == [(3, 1)] * 5


def test_a_lost_connections_messages_go_to_the_others(subscribed):
    flow(subscribed)
    other = Peer(subscribed.broker)
    other.subscribe()
    assert other.entry_ids() == []
    subscribed.connection.lost()
    assert other.entry_ids() == [0, 1, 2, 3, 4]


def test_a_closed_consumer_gets_nothing_more_and_its_subscription_stays(subscribed):
    flow(subscribed)
    subscribed.hear()
    assert subscribed.ask(CommandCloseConsumer(consumer_id=1, request_id=4)) == CommandSuccess(request_id=4)
    subscribed.publish(1)
    assert subscribed.entry_ids() == []
    assert subscribed.subscribe(2).request_id == 2
    assert subscribed.entry_ids() == [0, 1, 2, 3, 4, 5]


def test_a_reader_goes_with_its_subscription(subscribed):
    subscribed.subscribe(2, subscription="reader", durable=False, start_message_id=message_id(3))
    assert subscribed.entry_ids() == [3, 4]
    acknowledge(subscribed, message_id(4), ack_type=Cumulative)
    subscribed.ask(CommandCloseConsumer(consumer_id=2, request_id=4))
    assert kept(subscribed) == []


@pytest.mark.parametrize("how", ["id", "time"])
def test_seeking_sends_the_consumers_away_before_it_succeeds(subscribed, how):
    other = Peer(subscribed.broker)
    other.subscribe(7)
    flow(subscribed)
    subscribed.hear()
    other.hear()
    where = {"message_id": message_id(0)} if how == "id" else {"message_publish_time": 0}
    subscribed.say(CommandSeek(consumer_id=1, request_id=6, **where))
    assert subscribed.hear() == [
        CommandCloseConsumer(consumer_id=1, request_id=UNASKED),
        CommandSuccess(request_id=6),
    ]
    assert other.hear() == [CommandCloseConsumer(consumer_id=7, request_id=UNASKED)]
    subscribed.subscribe(1)
    assert subscribed.entry_ids() == [0, 1, 2, 3, 4]


def test_a_reader_that_sought_starts_there_when_it_comes_back(subscribed):
    reader = {"subscription": "reader", "durable": False}
    subscribed.subscribe(2, **reader, start_message_id=message_id(0))
    subscribed.hear()
    subscribed.ask(CommandSeek(consumer_id=2, request_id=6, message_id=message_id(3)))
    subscribed.subscribe(2, **reader, start_message_id=message_id(1))
    assert subscribed.entry_ids() == [3, 4]


def test_a_reader_that_sought_and_never_comes_back_leaves_nothing_behind(subscribed):
    other = Peer(subscribed.broker)
    other.subscribe(2, subscription="reader", durable=False, start_message_id=message_id(0))
    other.ask(CommandSeek(consumer_id=2, request_id=6, message_id=message_id(3)))
    other.connection.lost()
    acknowledge(subscribed, message_id(4), ack_type=Cumulative)
    assert kept(subscribed) == []


def test_unsubscribing_frees_what_was_kept(subscribed):
    assert subscribed.ask(CommandUnsubscribe(consumer_id=1, request_id=4)) == CommandSuccess(request_id=4)
    assert kept(subscribed) == []


def test_only_the_last_consumer_may_unsubscribe_unless_by_force(subscribed):
    other = Peer(subscribed.broker)
    other.subscribe(7, permits=0)
    refused = subscribed.ask(CommandUnsubscribe(consumer_id=1, request_id=4))
    assert (type(refused), refused.error) == (CommandError, ServerError.MetadataError)
    assert subscribed.ask(CommandUnsubscribe(consumer_id=1, request_id=5, force=True)) == CommandSuccess(request_id=5)
    assert other.hear() == [CommandCloseConsumer(consumer_id=7, request_id=UNASKED)]


@pytest.mark.parametrize("command", [CommandSeek, CommandUnsubscribe, CommandGetLastMessageId])
def test_a_request_for_an_unknown_consumer_is_refused(subscribed, command):
    refused = subscribed.ask(command(consumer_id=44, request_id=4))
    assert (refused.request_id, refused.error) == (4, ServerError.ConsumerNotFound)


def test_what_is_no_request_and_names_an_unknown_consumer_is_passed_over(subscribed):
    flow(subscribed, consumer_id=44)
    subscribed.say(CommandRedeliverUnacknowledgedMessages(consumer_id=44))
    assert subscribed.hear() == []
    assert not subscribed.link.aborted


def last_id(peer, consumer_id=1):
    return peer.ask(CommandGetLastMessageId(consumer_id=consumer_id, request_id=4))


def test_the_last_message_id_is_the_newest_entry_and_the_last_of_its_batch(subscribed):
    assert last_id(subscribed).last_message_id == message_id(4)
    subscribed.broker.topic(TOPIC).publish(3, payload(num_messages_in_batch=3))
    assert last_id(subscribed).last_message_id == message_id(5, batch_index=2)


def test_the_mark_delete_position_is_the_last_entry_that_is_done(subscribed):
    assert last_id(subscribed).consumer_mark_delete_position.entry_id == 2**64 - 1
    acknowledge(subscribed, message_id(1), ack_type=Cumulative)
    assert last_id(subscribed).consumer_mark_delete_position == message_id(1)


def test_a_reader_is_not_told_of_entries_that_are_gone(subscribed):
    """Else it would wait for them: has_message_available() would say yes for ever."""
    acknowledge(subscribed, message_id(4), ack_type=Cumulative)
    subscribed.subscribe(2, subscription="reader", durable=False, start_message_id=message_id(0))
    assert last_id(subscribed, consumer_id=2).last_message_id.entry_id == 2**64 - 1
    assert last_id(subscribed, consumer_id=1).last_message_id == message_id(4)


def test_a_paused_connection_gets_answers_but_no_messages(subscribed):
    subscribed.connection.pause()
    flow(subscribed)
    assert last_id(subscribed).last_message_id == message_id(4)
    subscribed.connection.resume()
    assert [type(message) for message in subscribed.hear()] == [CommandMessage] * 5
