from itertools import pairwise
from typing import Any

import pytest

from loadgen.load.results import Books
from loadgen.load.run import Order, Surroundings, run
from loadgen.load.scenario import Scenario
from tests.loadgen.load.fake_clients import FakeBroker, FakeTime

STEADY = "persistent://bank/payments/orders"
GREEDY = "persistent://web/crawler/pages"
SCENARIO = Scenario.model_validate(
    {
        "tenants": {
            "bank": {
                "topics": {
                    "payments/orders": {
                        "producers": 2,
                        "connection": "gateway",
                        "pattern": {"kind": "steady", "rate": 100},
                    },
                }
            },
            "web": {
                "topics": {
                    "crawler/pages": {
                        "connection": "gateway",
                        "pending": 50,
                        "pattern": {"kind": "greedy", "rate": 1000},
                    },
                    "crawler/links": {"pattern": {"kind": "bursty", "rate": 50, "burst": 1, "pause": 1}},
                }
            },
        }
    }
)


def ran(broker: FakeBroker, verify_url: str | None = "pulsar://broker", drain_s: float = 5, **around: Any) -> Books:
    time = FakeTime(broker.tick)
    order = Order(SCENARIO, "pulsar://proxy", verify_url, 4, drain_s)
    return run(order, Surroundings(time.clock, time.sleep, broker.clients, **around))


def offered(books: Books, topic: str) -> int:
    return sum(lane.offered for lane in books.offers[topic].lanes)


def test_each_topic_is_offered_what_its_pattern_and_its_first_messages_make() -> None:
    books = ran(FakeBroker())
    assert {topic.rpartition("/")[2]: offered(books, topic) for topic in books.offers} == {
        "orders": 402,
        "pages": 4001,
        "links": 101,
    }


def test_all_that_was_sent_is_in_the_receiving_ends_book() -> None:
    books = ran(FakeBroker())
    assert books.arrivals is not None
    assert all(books.arrivals[topic].distinct == offered(books, topic) for topic in books.offers)


def test_senders_go_through_the_proxy_and_the_receiving_end_does_not() -> None:
    broker = FakeBroker()
    ran(broker)
    assert broker.urls == ["pulsar://proxy", "pulsar://broker"]


def test_topics_that_name_a_connection_share_it_and_others_have_their_own() -> None:
    broker = FakeBroker()
    ran(broker)
    assert sorted(map(len, broker.connections.values())) == [1, 2]
    assert broker.connections["shared gateway"] == {STEADY, GREEDY}


def test_a_throttled_topic_refuses_what_its_queue_cannot_hold_and_leaves_others_their_pace() -> None:
    books = ran(FakeBroker(per_tick={GREEDY: 1}))
    greedy = books.offers[GREEDY]
    assert offered(books, STEADY) == 402
    assert greedy.refused_by_client_queue > 0
    assert offered(books, GREEDY) + greedy.refused_by_client_queue == greedy.wanted == 4001


def test_offering_stops_in_time_and_receipts_are_waited_for() -> None:
    books = ran(FakeBroker(per_tick={GREEDY: 1}))
    assert books.stopped_offering - books.began == pytest.approx(4, abs=0.02)
    assert books.offers[GREEDY].on_their_way == 0


def test_the_wait_for_receipts_is_bounded() -> None:
    books = ran(FakeBroker(per_tick={GREEDY: 0}), drain_s=2)
    assert books.offers[GREEDY].on_their_way == 50
    assert books.samples[-1][0] < books.stopped_offering + 3


def test_what_is_on_its_way_is_sampled_for_each_topic() -> None:
    books = ran(FakeBroker(per_tick={GREEDY: 1}))
    most = {topic: max(waiting[topic] for _, waiting in books.samples) for topic in books.offers}
    assert (most[GREEDY], most[STEADY]) == (50, 0)


def test_the_wait_for_lost_messages_is_bounded_too() -> None:
    books = ran(FakeBroker(loses=STEADY))
    assert books.arrivals is not None
    assert books.arrivals[STEADY].distinct == 0


def test_without_a_receiving_end_there_is_no_book_of_it() -> None:
    broker = FakeBroker()
    assert ran(broker, verify_url=None).arrivals is None
    assert broker.urls == ["pulsar://proxy"]


def test_progress_comes_twice_a_second_with_the_counts_of_both_ends() -> None:
    seen: list[tuple[float, Any]] = []
    ran(FakeBroker(), progress=lambda at, topics: seen.append((at, topics)))
    times = [at for at, _ in seen]
    assert all(0.49 < later - earlier < 0.52 for earlier, later in pairwise(times[3:9]))
    last = seen[-1][1][STEADY]
    assert (last["offered_messages"], last["receipts"], last["received"]) == (402, 402, 402)
