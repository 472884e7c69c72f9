"""What a worker's client hears of messages that the quota server lets pass or refuses, long after they came."""

from typing import Any

import pytest

from limiter.limiter import Stream, StreamName
from limiter.workers.messages import QueuedEntry, Rejected, Released, Wired
from limiter.workers.quota_client import QuotaClient
from protocol.commands import body_of, encode, split
from protocol.frames import SEND
from protocol.pulsar_pb2 import CommandSendError, CommandSendReceipt, NotAllowedError
from proxy.budgets import Budget, Claim, Pool, Share, SharedBudget
from proxy.observe.counters import Counters
from proxy.session import responses as module
from proxy.session.data_path import DataPath, FrameWriter, HeldMemory
from proxy.session.responses import Rejections
from proxy.session.transport import Throttled
from tests.limiter.workers.together import WHOSE, Bells
from tests.proxy.wire import send
from tests.proxy.written import Written


class Producer:
    """One whose limits are judged elsewhere, by the test."""

    def __init__(self, *, is_wired: bool = True) -> None:
        self.told: list[CommandSendError | CommandSendReceipt] = []
        self.turns: list[bool] = []
        self.hears = 0
        self.quota_client = QuotaClient(Bells())
        self.at_broker = Written()
        self.budget = Budget(10**9, lambda _is_full: None)
        share = Share(SharedBudget(10**9, lambda *_over: None, lambda: None), lambda _is_over: None)
        holdings = HeldMemory(self.budget, share, Claim(Pool(10**9, 10**9), ""))
        self.rejections = Rejections(self._tell, self._hear, NotAllowedError, self.turns.append, holdings.keep_answers)
        relay = self.relay = DataPath(
            SEND,
            10_000,
            Throttled(),
            FrameWriter(self.at_broker),
            holdings,
            self.quota_client,
            lambda _kind, _command, frame: frame,
            Counters(),
            lambda: 0,
            rejections=self.rejections,
        )
        name = StreamName("publish", "t", "n", "x", 1)

        self.stream = relay.streams[1] = Stream(name, (), relay.release, is_accepted=True)
        self.quota_client.open(self.stream, "t/n/x", WHOSE)
        self.quota_client.answer(self.stream, relay)
        if is_wired:
            self.wired(is_rejected=True)

    def wired(self, *, is_rejected: bool) -> None:
        self.quota_client.obey(Wired(1, [], by_queue=is_rejected, is_metered=False, is_rejected=is_rejected), 0)

    def offer(self, *numbers: int, **more: Any) -> None:
        for number in numbers:
            frame = send(number, **more)
            self.relay.feed(frame, len(frame))

    def receipt(self, number: int) -> None:
        command = CommandSendReceipt(producer_id=1, sequence_id=number)
        self.rejections.answered(command, encode(command))

    def _tell(self, frame: bytes) -> None:
        self.told.append(body_of(split(frame)[0]))

    def _hear(self) -> None:
        self.hears += 1

    @property
    def refused(self) -> list[int]:
        return [answer.sequence_id for answer in self.told if isinstance(answer, CommandSendError)]


def test_what_is_refused_goes_nowhere_and_its_client_hears_it_behind_the_receipt_of_what_went() -> None:
    producer = Producer()
    producer.offer(0, 1, 2)
    assert producer.budget.used > 0
    producer.quota_client.obey(Released(1, 1), 0)
    producer.quota_client.obey(Rejected(1, 3, "over the limit"), 0)
    assert producer.at_broker.parts == [send(0)]
    assert (producer.budget.used, producer.told) == (0, [])
    producer.receipt(0)
    assert producer.refused == [1, 2]
    error = producer.told[1]
    assert isinstance(error, CommandSendError)
    assert (error.producer_id, error.error, error.message) == (1, NotAllowedError, "over the limit")


def test_the_quota_server_is_told_which_messages_the_client_would_not_give_up() -> None:
    producer = Producer()
    producer.offer(0)
    producer.offer(1, is_chunk=True)
    assert [message.must_wait for message in producer.quota_client.take() if isinstance(message, QueuedEntry)] == [
        False,
        True,
    ]


def test_it_is_told_so_too_while_the_worker_does_not_know_yet_whether_a_limit_refuses() -> None:
    producer = Producer(is_wired=False)
    producer.offer(0, is_chunk=True)
    assert [message.must_wait for message in producer.quota_client.take() if isinstance(message, QueuedEntry)] == [True]


def test_a_command_behind_what_is_refused_goes_on() -> None:
    producer = Producer()
    producer.offer(0)
    producer.relay.hold_behind(producer.stream, b"close")
    producer.quota_client.obey(Rejected(1, 1, "over the limit"), 0)
    assert producer.at_broker.parts == [b"close"]
    assert producer.refused == [0]


def test_receipts_are_not_heard_where_no_limit_refuses() -> None:
    producer = Producer()
    producer.offer(0)
    producer.wired(is_rejected=False)
    producer.quota_client.obey(Released(1, 1), 0)
    assert (producer.at_broker.parts, producer.hears) == ([send(0)], 0)


def test_what_is_refused_after_as_many_errors_wait_as_may_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had come before, and was not judged."""
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    producer = Producer()
    producer.offer(0, 1, 2, 3)
    producer.quota_client.obey(Released(1, 1), 0)
    producer.quota_client.obey(Rejected(1, 4, "over the limit"), 0)
    assert producer.turns == [True]
    assert producer.budget.used == 0
    producer.receipt(0)
    assert producer.refused == [1, 2, 3]
    assert producer.turns == [True, False]
