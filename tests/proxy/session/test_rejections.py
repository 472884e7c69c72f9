import itertools
from collections import deque
from collections.abc import Iterator

import pytest

from limiter.limiter import Stream, StreamName, refusal_of
from protocol.commands import body_of, decode, encode, wrap
from protocol.frames import FrameCutter
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
    """A producer whose messages are accepted or refused; what conversations with it show is in test_session_reject."""

    def __init__(self) -> None:
        self.answers: list[CommandSendError | CommandSendReceipt] = []
        self.turns: list[bool] = []
        self.kept = 0
        self.turn = 10**9
        """The units of work for which a turn of the loop has room."""
        self.units: Iterator[None] = iter(())
        self.rejections = Rejections(
            self._answer, lambda: None, NotAllowedError, self.turns.append, self._keep, self._begin
        )
        self.stream = Stream(StreamName("publish", "t", "n", "x", 1), (LIMIT,), lambda _stream, _entry: None)

    def send(self, sequence_id: int) -> bytes:
        return wrap(CommandSend(producer_id=1, sequence_id=sequence_id)).SerializeToString()

    def accept(self, *numbers: int) -> None:
        for number in numbers:
            self.rejections.accepted(self.stream, self.send(number))

    def refuse(self, *numbers: int) -> None:
        for number in numbers:
            self.rejections.refused(self.stream, refusal_of(LIMIT), CommandSend(producer_id=1, sequence_id=number))

    def receipt(self, *numbers: int) -> None:
        for number in numbers:
            command = CommandSendReceipt(producer_id=1, sequence_id=number)
            self.rejections.answered(command, encode(command))

    def go_on(self) -> None:
        """Let the next turn of the loop come."""
        deque(itertools.islice(self.units, self.turn), maxlen=0)

    def _begin(self, units: Iterator[None]) -> None:
        self.units = units
        self.go_on()

    def _answer(self, frames: bytes) -> None:
        self.answers += [body_of(decode(frame[8:])) for frame in FrameCutter(10_000).feed(frames)]

    def _keep(self, tenant: str, more: int) -> None:
        assert tenant == self.stream.name.tenant
        self.kept += more

    @property
    def errors(self) -> list[CommandSendError]:
        return [frame for frame in self.answers if isinstance(frame, CommandSendError)]

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


def test_a_client_is_paused_until_half_of_its_errors_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_many_errors_go_in_slices_and_receipts_keep_their_place() -> None:
    producer = Producer()
    producer.turn = 2
    producer.accept(0)
    producer.refuse(*range(1, 100))
    producer.accept(100)
    producer.refuse(101)
    producer.receipt(0)
    assert len(producer.answers) <= 1 + 2 * module._SENT_AT_ONCE
    producer.receipt(100)
    producer.refuse(102)
    heard: list[CommandSendError | CommandSendReceipt] = []
    while len(heard) < len(producer.answers):
        heard = list(producer.answers)
        producer.go_on()
        assert len(producer.answers) - len(heard) <= 2 * module._SENT_AT_ONCE
    assert [answer.sequence_id for answer in producer.answers] == list(range(103))
    assert [answer.sequence_id for answer in heard if isinstance(answer, CommandSendReceipt)] == [0, 100]
    assert producer.kept == 0


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_has_come_is_sent_before_its_producer_is_over(*, is_stopped: bool) -> None:
    """The broker's last receipts come before it closes the producer; what waits for others does not go."""
    producer = Producer()
    producer.turn = 1
    producer.accept(0)
    producer.refuse(*range(1, 50))
    producer.accept(50)
    producer.refuse(51)
    producer.accept(52)
    producer.refuse(53)
    producer.receipt(0, 50)
    assert len(producer.answers) < 50, "they are many for a turn"
    if is_stopped:
        producer.rejections.stop()
    producer.rejections.closed(producer.stream)
    producer.go_on()
    assert [answer.sequence_id for answer in producer.answers] == list(range(52))
    assert producer.kept == 0


def test_what_errors_take_while_they_wait_is_counted() -> None:
    producer = Producer()
    producer.refuse(0)
    assert producer.kept == 0, "it goes at once"
    producer.accept(1)
    producer.refuse(2)
    memory = producer.kept
    assert memory > ENTRY_OVERHEAD
    producer.refuse(3)
    assert producer.kept == 2 * memory
    producer.receipt(1)
    assert producer.kept == 0


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
def test_each_client_has_the_error_that_ends_one_message_alone(client_version: str, error: ServerError | None) -> None:
    assert error_for(client_version) == error
