"""Frames that are made thousands of times a second: one envelope each, filled anew and serialised."""

from loadgen.standin.consumer import Delivery
from protocol.commands import SIZES
from protocol.pulsar_pb2 import BaseCommand, CommandSend, MessageIdData


def set_message_id(message_id: MessageIdData, ledger_id: int, entry_id: int, partition: int) -> None:
    """Fill in a message id; the partition only where the topic is one."""
    message_id.ledger_id = ledger_id
    message_id.entry_id = entry_id
    if partition >= 0:
        message_id.partition = partition


class ReceiptFrames:
    """SEND_RECEIPTs of one producer.

    Args:
        producer_id: The client's number for it.
        ledger_id: The ledger that its entries go to.
        partition: The topic's partition, -1 where it is none.
    """

    def __init__(self, producer_id: int, ledger_id: int, partition: int) -> None:
        self._envelope = BaseCommand(type=BaseCommand.SEND_RECEIPT)
        self._receipt = self._envelope.send_receipt
        self._receipt.producer_id = producer_id
        self._message_id = self._receipt.message_id
        set_message_id(self._message_id, ledger_id, 0, partition)

    def frame(self, send: CommandSend, entry_id: int) -> bytes:
        """The receipt for one SEND."""
        self._receipt.sequence_id = send.sequence_id
        self._receipt.highest_sequence_id = send.highest_sequence_id
        self._message_id.entry_id = entry_id
        body = self._envelope.SerializeToString()
        return SIZES.pack(len(body) + 4, len(body)) + body


class MessageFrames:
    """MESSAGEs to one consumer.

    Args:
        consumer_id: The client's number for it.
        ledger_id: The ledger of its topic.
        partition: The topic's partition, -1 where it is none.
    """

    def __init__(self, consumer_id: int, ledger_id: int, partition: int) -> None:
        self._envelope = BaseCommand(type=BaseCommand.MESSAGE)
        self._message = self._envelope.message
        self._message.consumer_id = consumer_id
        self._message_id = self._message.message_id
        set_message_id(self._message_id, ledger_id, 0, partition)

    def frame(self, delivery: Delivery, epoch: int | None) -> bytes:
        """The frame of one delivery."""
        self._message_id.entry_id = delivery.entry.entry_id
        self._message.redelivery_count = delivery.redelivery_count
        del self._message.ack_set[:]
        self._message.ack_set.extend(delivery.ack_set)
        if epoch is not None:
            self._message.consumer_epoch = epoch
        body = self._envelope.SerializeToString()
        data = delivery.entry.data
        return SIZES.pack(len(body) + 4 + len(data), len(body)) + body + data
