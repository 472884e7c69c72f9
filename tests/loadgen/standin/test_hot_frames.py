from loadgen.standin.consumer import Delivery
from loadgen.standin.entry import Entry
from loadgen.standin.hot_frames import MessageFrames, ReceiptFrames
from protocol.commands import body_of, encode, encode_with_payload, split
from protocol.pulsar_pb2 import CommandMessage, CommandSend, CommandSendReceipt
from tests.loadgen.standin.doubles import message_id


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
        delivery = Delivery(Entry(entry_id, 1, b"data"), count, ack_set)
        anew = CommandMessage(
            consumer_id=4, message_id=message_id(entry_id, 7), redelivery_count=count, ack_set=ack_set
        )
        assert frames.frame(delivery, epoch=None) == encode_with_payload(anew, b"data")


def test_a_message_carries_its_consumers_epoch():
    frame = MessageFrames(1, 1, -1).frame(Delivery(Entry(0, 1, b""), 0, ()), epoch=9)
    assert body_of(split(frame)[0]).consumer_epoch == 9
