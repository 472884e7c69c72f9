import pytest

from loadgen.standin.refusal import UNASKED
from protocol.pulsar_pb2 import (
    CommandAck,
    CommandAckResponse,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandError,
    CommandFlow,
    CommandGetLastMessageId,
    CommandMessage,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandSuccess,
    CommandUnsubscribe,
    ServerError,
)
from tests.loadgen.standin.doubles import TOPIC, Peer, message_id, payload

Individual, Cumulative = CommandAck.Individual, CommandAck.Cumulative


@pytest.fixture
def peer():
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


def test_messages_come_with_their_bytes_unchanged(peer):
    flow(peer, 2)
    frames = peer.hear_frames()
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


def test_asking_again_for_a_subscribed_consumer_is_answered_again(peer):
    assert peer.subscribe(1, permits=0).request_id == 2
    assert len(peer.broker.topic(TOPIC)._subscriptions["s"].consumers) == 1


def test_acknowledged_entries_are_freed(peer):
    acknowledge(peer, message_id(1), message_id(0))
    assert kept(peer) == [2, 3, 4]
    acknowledge(peer, message_id(3), ack_type=Cumulative)
    assert kept(peer) == [4]


def test_an_acknowledgement_of_another_ledger_changes_nothing(peer):
    acknowledge(peer, message_id(4, ledger_id=99), ack_type=Cumulative)
    assert kept(peer) == [0, 1, 2, 3, 4]


def test_an_acknowledgement_is_answered_if_it_is_a_request_even_after_the_consumer_has_gone(peer):
    acknowledge(peer, message_id(0))
    assert peer.hear() == []
    acknowledge(peer, message_id(1), request_id=8)
    assert peer.hear() == [CommandAckResponse(consumer_id=1, request_id=8)]
    peer.ask(CommandUnsubscribe(consumer_id=1, request_id=9))
    acknowledge(peer, message_id(2), request_id=10)
    assert peer.hear() == [CommandAckResponse(consumer_id=1, request_id=10)]


def test_redelivery_brings_the_epoch_that_it_was_asked_with(peer):
    flow(peer)
    peer.hear()
    peer.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=3))
    again = peer.hear()
    assert [(message.consumer_epoch, message.redelivery_count) for message in again] == [(3, 1)] * 5


def test_a_lost_connections_messages_go_to_the_others(peer):
    flow(peer)
    other = Peer(peer.broker)
    other.subscribe()
    assert other.entry_ids() == []
    peer.connection.lost()
    assert other.entry_ids() == [0, 1, 2, 3, 4]


def test_a_closed_consumer_gets_nothing_more_and_its_subscription_stays(peer):
    flow(peer)
    peer.hear()
    assert peer.ask(CommandCloseConsumer(consumer_id=1, request_id=4)) == CommandSuccess(request_id=4)
    peer.publish(1)
    assert peer.entry_ids() == []
    assert peer.subscribe(2).request_id == 2
    assert peer.entry_ids() == [0, 1, 2, 3, 4, 5]


def test_a_reader_goes_with_its_subscription(peer):
    peer.subscribe(2, subscription="reader", durable=False, start_message_id=message_id(3))
    assert peer.entry_ids() == [3, 4]
    acknowledge(peer, message_id(4), ack_type=Cumulative)
    peer.ask(CommandCloseConsumer(consumer_id=2, request_id=4))
    assert kept(peer) == []


@pytest.mark.parametrize("how", ["id", "time"])
def test_seeking_sends_the_consumers_away_before_it_succeeds(peer, how):
    other = Peer(peer.broker)
    other.subscribe(7)
    flow(peer)
    peer.hear()
    other.hear()
    where = {"message_id": message_id(0)} if how == "id" else {"message_publish_time": 0}
    peer.say(CommandSeek(consumer_id=1, request_id=6, **where))
    assert peer.hear() == [
        CommandCloseConsumer(consumer_id=1, request_id=UNASKED),
        CommandSuccess(request_id=6),
    ]
    assert other.hear() == [CommandCloseConsumer(consumer_id=7, request_id=UNASKED)]
    peer.subscribe(1)
    assert peer.entry_ids() == [0, 1, 2, 3, 4]


def test_a_reader_that_sought_starts_there_when_it_comes_back(peer):
    reader = {"subscription": "reader", "durable": False}
    peer.subscribe(2, **reader, start_message_id=message_id(0))
    peer.hear()
    peer.ask(CommandSeek(consumer_id=2, request_id=6, message_id=message_id(3)))
    peer.subscribe(2, **reader, start_message_id=message_id(1))
    assert peer.entry_ids() == [3, 4]


def test_a_reader_that_sought_and_never_comes_back_leaves_nothing_behind(peer):
    other = Peer(peer.broker)
    other.subscribe(2, subscription="reader", durable=False, start_message_id=message_id(0))
    other.ask(CommandSeek(consumer_id=2, request_id=6, message_id=message_id(3)))
    other.connection.lost()
    acknowledge(peer, message_id(4), ack_type=Cumulative)
    assert kept(peer) == []


def test_unsubscribing_frees_what_was_kept(peer):
    assert peer.ask(CommandUnsubscribe(consumer_id=1, request_id=4)) == CommandSuccess(request_id=4)
    assert kept(peer) == []


def test_only_the_last_consumer_may_unsubscribe_unless_by_force(peer):
    other = Peer(peer.broker)
    other.subscribe(7, permits=0)
    refused = peer.ask(CommandUnsubscribe(consumer_id=1, request_id=4))
    assert (type(refused), refused.error) == (CommandError, ServerError.MetadataError)
    assert peer.ask(CommandUnsubscribe(consumer_id=1, request_id=5, force=True)) == CommandSuccess(request_id=5)
    assert other.hear() == [CommandCloseConsumer(consumer_id=7, request_id=UNASKED)]


@pytest.mark.parametrize("command", [CommandSeek, CommandUnsubscribe, CommandGetLastMessageId])
def test_a_request_for_an_unknown_consumer_is_refused(peer, command):
    refused = peer.ask(command(consumer_id=44, request_id=4))
    assert (refused.request_id, refused.error) == (4, ServerError.ConsumerNotFound)


def test_what_is_no_request_and_names_an_unknown_consumer_is_passed_over(peer):
    flow(peer, consumer_id=44)
    peer.say(CommandRedeliverUnacknowledgedMessages(consumer_id=44))
    assert peer.hear() == []
    assert not peer.link.aborted


def last_id(peer, consumer_id=1):
    return peer.ask(CommandGetLastMessageId(consumer_id=consumer_id, request_id=4))


def test_the_last_message_id_is_the_newest_entry_and_the_last_of_its_batch(peer):
    assert last_id(peer).last_message_id == message_id(4)
    peer.broker.topic(TOPIC).publish(3, payload(num_messages_in_batch=3))
    assert last_id(peer).last_message_id == message_id(5, batch_index=2)


def test_the_mark_delete_position_is_the_last_entry_that_is_done(peer):
    assert last_id(peer).consumer_mark_delete_position.entry_id == 2**64 - 1
    acknowledge(peer, message_id(1), ack_type=Cumulative)
    assert last_id(peer).consumer_mark_delete_position == message_id(1)


def test_a_reader_is_not_told_of_entries_that_are_gone(peer):
    """Else it would wait for them: has_message_available() would say yes for ever."""
    acknowledge(peer, message_id(4), ack_type=Cumulative)
    peer.subscribe(2, subscription="reader", durable=False, start_message_id=message_id(0))
    assert last_id(peer, consumer_id=2).last_message_id.entry_id == 2**64 - 1
    assert last_id(peer, consumer_id=1).last_message_id == message_id(4)


def test_a_paused_connection_gets_answers_but_no_messages(peer):
    peer.connection.pause()
    flow(peer)
    assert last_id(peer).last_message_id == message_id(4)
    peer.connection.resume()
    assert [type(message) for message in peer.hear()] == [CommandMessage] * 5
