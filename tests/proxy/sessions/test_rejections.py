import pytest

from limiter.stream import Stream, StreamName
from limiter.turns import refusal_of
from protocol.commands import body_of, decode, encode, wrap
from protocol.pulsar_pb2 import CommandSend, CommandSendError, CommandSendReceipt, NotAllowedError
from proxy.sessions import rejections as module
from proxy.sessions.rejections import Rejections, TooManyRejectionsError
from tests.limiter.world import limiter

LIMIT = limiter(10, 500, name="persistent://t/n/x")


class Producer:
    """A producer whose messages are accepted or refused, and the numbers of those it heard were refused."""

    def __init__(self, producer_id: int = 1) -> None:
        self.told: list[CommandSendError | CommandSendReceipt] = []
        self.is_heard = False
        self.rejections = Rejections(lambda frame: self.told.append(body_of(decode(frame[8:]))), self._hear)
        self.stream = Stream(StreamName("publish", "t", "n", "x", producer_id), (LIMIT,), lambda _stream, _entry: None)

    def send(self, sequence_id: int) -> bytes:
        return wrap(CommandSend(producer_id=self.stream.name.stream_id, sequence_id=sequence_id)).SerializeToString()

    def accept(self, *numbers: int) -> None:
        for number in numbers:
            self.rejections.accepted(self.stream, self.send(number))

    def refuse(self, *numbers: int) -> None:
        for number in numbers:
            self.rejections.refused(self.stream, refusal_of(LIMIT), self.send(number))

    def receipt(self, *numbers: int) -> None:
        for number in numbers:
            command = CommandSendReceipt(producer_id=self.stream.name.stream_id, sequence_id=number)
            self.rejections.answered(command, encode(command))

    def _hear(self) -> None:
        self.is_heard = True

    @property
    def errors(self) -> list[CommandSendError]:
        return [frame for frame in self.told if isinstance(frame, CommandSendError)]

    @property
    def heard(self) -> list[int]:
        return [error.sequence_id for error in self.errors]


def test_a_refusal_names_the_message_the_limit_and_its_value() -> None:
    producer = Producer()
    producer.refuse(7)
    (error,) = producer.errors
    assert (error.producer_id, error.sequence_id, error.error) == (1, 7, NotAllowedError)
    assert (
        error.message == "over the publish limit of topic persistent://t/n/x: 10 messages per 1 s and 500 bytes per 1 s"
    )


def test_a_refusal_waits_for_the_receipt_of_what_was_sent_before_it() -> None:
    producer = Producer()
    producer.accept(0, 1)
    producer.refuse(2, 3)
    assert producer.heard == []
    producer.receipt(0)
    assert producer.heard == []
    producer.receipt(1)
    assert producer.heard == [2, 3]


def test_refusals_between_accepted_messages_keep_their_places() -> None:
    producer = Producer()
    producer.accept(0)
    producer.refuse(1)
    producer.accept(2)
    producer.refuse(3)
    producer.receipt(0)
    assert producer.heard == [1]
    producer.receipt(2)
    assert producer.heard == [1, 3]


def test_with_nothing_under_way_a_refusal_goes_at_once() -> None:
    producer = Producer()
    producer.accept(0)
    producer.receipt(0)
    producer.refuse(1)
    assert producer.heard == [1]


def test_producers_do_not_wait_for_each_other() -> None:
    producer, other = Producer(1), Producer(2)
    other.rejections = producer.rejections
    producer.accept(0)
    other.refuse(5)
    producer.refuse(1)
    assert [(error.producer_id, error.sequence_id) for error in producer.errors] == [(2, 5)]
    other.receipt(0)
    assert producer.heard == [5]
    producer.receipt(0)
    assert producer.heard == [5, 1]


def test_refusals_go_behind_the_receipt_itself() -> None:
    producer = Producer()
    producer.accept(0)
    producer.refuse(1)
    producer.receipt(0)
    assert [type(frame) for frame in producer.told] == [CommandSendReceipt, CommandSendError]


def test_an_answer_to_a_producer_that_no_limit_refuses_is_left_to_the_caller() -> None:
    producer = Producer()
    command = CommandSendReceipt(producer_id=1, sequence_id=3)
    assert not producer.rejections.answered(command, encode(command))
    assert producer.told == []
    producer.accept(4)
    assert producer.rejections.answered(command, encode(command))
    assert producer.told == [command]


def test_receipts_are_heard_from_the_first_message_on_that_might_have_been_refused() -> None:
    producer = Producer()
    assert not producer.is_heard
    producer.accept(0)
    assert producer.is_heard


def test_of_a_closed_producer_nothing_more_is_told_and_its_id_starts_anew() -> None:
    producer = Producer()
    producer.accept(0)
    producer.refuse(1)
    producer.rejections.closed(producer.stream)
    producer.receipt(0)
    assert producer.heard == []
    producer.refuse(0)
    assert producer.heard == [0]


def test_more_refusals_than_anybody_should_wait_for_are_a_broken_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    producer = Producer()
    producer.accept(0)
    producer.refuse(1, 2)
    with pytest.raises(TooManyRejectionsError, match="2 messages"):
        producer.refuse(3)
