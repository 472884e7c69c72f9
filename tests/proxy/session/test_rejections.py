from typing import Any

import pytest

from limiter.limiter import Stream, StreamName, refusal_of
from protocol.commands import body_of, decode, encode, wrap
from protocol.pulsar_pb2 import (
    ChecksumError,
    CommandSend,
    CommandSendError,
    CommandSendReceipt,
    NotAllowedError,
    ServerError,
)
from proxy.budgets import ENTRY_OVERHEAD
from proxy.session import responses as module
from proxy.session.responses import Rejections, error_for
from tests.limiter.world import limiter

LIMIT = limiter(10, 500, name="persistent://t/n/x")


class Producer:
    """A producer whose messages are accepted or refused, and the numbers of those it heard were refused."""

    def __init__(self, producer_id: int = 1, error: ServerError | None = NotAllowedError) -> None:
        self.told: list[CommandSendError | CommandSendReceipt] = []
        self.is_heard = False
        self.turns: list[bool] = []
        self.kept = 0
        self.rejections = Rejections(self._tell, self._hear, error, self.turns.append, self._keep)
        self.stream = Stream(StreamName("publish", "t", "n", "x", producer_id), (LIMIT,), lambda _stream, _entry: None)

    def send(self, sequence_id: int, **more: Any) -> bytes:
        command = CommandSend(producer_id=self.stream.name.stream_id, sequence_id=sequence_id, **more)
        return wrap(command).SerializeToString()

    def accept(self, *numbers: int) -> None:
        for number in numbers:
            self.rejections.accepted(self.stream, self.send(number))

    def refuse(self, *numbers: int) -> None:
        for number in numbers:
            self.rejections.refused(self.stream, refusal_of(LIMIT), self.send(number))

    def refuse_batch(self, lowest: int, highest: int) -> None:
        batch = self.send(lowest, highest_sequence_id=highest, num_messages=highest - lowest + 1)
        self.rejections.refused(self.stream, refusal_of(LIMIT), batch)

    def receipt(self, *numbers: int) -> None:
        for number in numbers:
            command = CommandSendReceipt(producer_id=self.stream.name.stream_id, sequence_id=number)
            self.rejections.answered(command, encode(command))

    def _tell(self, frame: bytes) -> None:
        self.told.append(body_of(decode(frame[8:])))

    def _keep(self, tenant: str, more: int) -> None:
        assert tenant == self.stream.name.tenant
        self.kept += more

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


def test_as_many_errors_wait_as_may_until_half_of_them_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 4)
    producer = Producer()
    producer.accept(0)
    producer.refuse(1)
    producer.accept(2)
    producer.refuse(3, 4)
    assert producer.turns == []
    producer.refuse(5)
    assert producer.turns == [True]
    producer.receipt(0)
    assert producer.turns == [True]
    producer.receipt(2)
    assert producer.turns == [True, False]
    assert producer.heard == [1, 3, 4, 5]


def test_errors_of_a_producer_that_is_over_wait_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    producer = Producer()
    producer.accept(0)
    producer.refuse(1, 2)
    producer.rejections.closed(producer.stream)
    assert producer.turns == [True, False]
    assert producer.kept == 0


def test_what_errors_take_while_they_wait_is_counted() -> None:
    producer = Producer()
    producer.refuse(0)
    assert producer.kept == 0, "it goes at once"
    producer.accept(1)
    producer.refuse(2)
    one = producer.kept
    assert one > ENTRY_OVERHEAD
    producer.refuse(3)
    assert producer.kept == 2 * one
    producer.receipt(1)
    assert producer.kept == 0


def test_refused_batch_has_highest_id_and_waits_for_the_lowest() -> None:
    producer = Producer()
    producer.rejections.accepted(producer.stream, producer.send(0, highest_sequence_id=9, num_messages=10))
    producer.refuse_batch(10, 19)
    assert producer.heard == []
    producer.receipt(0)
    assert producer.heard == [19]


def test_a_client_that_does_not_say_the_highest_is_told_the_only_one_it_says() -> None:
    producer = Producer()
    producer.rejections.refused(producer.stream, refusal_of(LIMIT), producer.send(10, num_messages=10))
    assert producer.heard == [10]


@pytest.mark.parametrize(
    ("client_version", "error"),
    [
        ("Pulsar-Java-v4.0.8", NotAllowedError),
        ("Pulsar-CPP-v4.2.0", ChecksumError),
        ("Pulsar-CPP-v4.2.0-of-somebody", ChecksumError),
        ("Pulsar-Go-v0.19.0", None),
        ("Pulsar Go 0.9.0", None),
        ("", NotAllowedError),
        ("another client", NotAllowedError),
    ],
)
def test_each_client_has_the_error_by_which_it_gives_up_one_message(
    client_version: str, error: ServerError | None
) -> None:
    assert error_for(client_version) == error


def test_a_client_is_told_its_own_error() -> None:
    producer = Producer(error=ChecksumError)
    producer.refuse(0)
    (error,) = producer.errors
    assert error.error == ChecksumError


def test_of_a_chunked_message_nothing_may_be_refused() -> None:
    producer = Producer()
    assert producer.rejections.may_refuse(producer.send(0))
    assert not producer.rejections.may_refuse(producer.send(0, is_chunk=True))


def test_of_a_client_that_knows_no_error_nothing_may_be_refused_and_nothing_is_kept() -> None:
    producer = Producer(error=None)
    assert not producer.rejections.may_refuse(producer.send(0))
    producer.accept(0)
    assert not producer.is_heard
    command = CommandSendReceipt(producer_id=1, sequence_id=0)
    assert not producer.rejections.answered(command, encode(command))
