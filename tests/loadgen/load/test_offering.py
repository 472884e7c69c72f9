from collections import Counter

from loadgen.load.offering import Clock, Lane, MessageOrigin, Sender, SendError, Settle, TopicOffer
from loadgen.load.payload import read_payload
from loadgen.load.scenario import Steady, TopicLoad

RUN = b"this run"


class FakeSender:
    """Keeps what it is given until the test settles it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[bytes, Settle]] = []
        self.sequences: list[int] = []

    def send(self, payload: bytes, settle: Settle) -> None:
        self.sequences.append(read_payload(payload).sequence)
        self.waiting.append((payload, settle))

    def settle_all(self, error: str = "") -> None:
        for _, settle in self.waiting:
            settle(error)
        self.waiting.clear()


class RefusingSender:
    def send(self, payload: bytes, settle: Settle) -> None:
        raise SendError("AlreadyClosed")


def lane(sender: Sender, pending: int = 3, producer: int = 0, clock: Clock = lambda: 0.0) -> Lane:
    return Lane(MessageOrigin(RUN, producer, 64, pending), sender, clock)


def offer(*lanes: Lane, rate: float = 10) -> TopicOffer:
    return TopicOffer(TopicLoad(pattern=Steady(kind="steady", rate=rate)), lanes)


def test_a_full_queue_refuses_and_counts_without_using_up_a_sequence_number() -> None:
    sender = FakeSender()
    topic = offer(lane(sender))
    topic.offer_due(0.5)
    assert (topic.wanted, topic.refused_by_client_queue, topic.on_their_way) == (5, 2, 3)
    sender.settle_all()
    topic.offer_due(0.7)
    assert (sender.sequences, topic.on_their_way) == ([0, 1, 2, 3, 4], 2)


def test_a_throttled_producer_does_not_keep_its_neighbour_from_its_turn() -> None:
    stuck, free = FakeSender(), FakeSender()
    topic = offer(lane(stuck, pending=1), lane(free, pending=100, producer=1))
    topic.offer_due(2.0)
    assert (len(stuck.waiting), len(free.waiting), topic.refused_by_client_queue) == (1, 10, 9)


def test_what_was_wanted_is_never_wanted_twice() -> None:
    sender = FakeSender()
    topic = offer(lane(sender, pending=100))
    for elapsed in (0.1, 0.1, 0.35, 1.0, 1.0):
        topic.offer_due(elapsed)
    assert topic.wanted == len(sender.waiting) == 10


def test_first_messages_are_one_a_producer_and_beyond_the_pattern() -> None:
    senders = FakeSender(), FakeSender()
    topic = offer(*(lane(sender, pending=100) for sender in senders))
    topic.offer_first()
    assert [len(sender.waiting) for sender in senders] == [1, 1]
    topic.offer_due(1.0)
    assert (topic.wanted, topic.on_their_way) == (12, 12)


def test_receipts_and_errors_are_counted_apart() -> None:
    sender = FakeSender()
    producer = lane(sender, pending=10)
    producer.offer()
    sender.settle_all()
    producer.offer()
    sender.settle_all(error="Timeout")
    assert (producer.offered, producer.receipts, producer.errors, producer.on_their_way) == (
        2,
        1,
        Counter(Timeout=1),
        0,
    )


def test_a_message_refused_at_once_is_offered_and_an_error() -> None:
    producer = lane(RefusingSender())
    assert producer.offer()
    assert (producer.offered, producer.errors, producer.on_their_way) == (1, Counter(AlreadyClosed=1), 0)


def test_latency_reaches_from_offer_to_receipt() -> None:
    now = iter([1.0, 3.5])
    sender = FakeSender()
    producer = lane(sender, clock=lambda: next(now))
    producer.offer()
    sender.settle_all()
    assert list(producer.latencies) == [2.5]
