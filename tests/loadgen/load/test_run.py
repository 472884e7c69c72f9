"""A run, and its command line."""

import gc
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import loadgen.load.run as load_main
from loadgen.load.results import Books
from loadgen.load.run import LoadOrder, Request, Surroundings, main, run
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
    order = LoadOrder(SCENARIO, "pulsar://proxy:6650", verify_url, 4, drain_s)
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
    assert broker.urls == ["pulsar://proxy:6650", "pulsar://broker"]


def test_topics_that_name_a_connection_share_it_and_others_have_their_own() -> None:
    broker = FakeBroker()
    ran(broker)
    assert sorted(map(len, broker.connections.values())) == [1, 2]
    assert broker.connections["shared gateway"] == {STEADY, GREEDY}


def test_a_throttled_topic_leaves_other_topics_their_pace() -> None:
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
    assert broker.urls == ["pulsar://proxy:6650"]


def test_progress_comes_twice_a_second_with_the_counts_of_both_ends() -> None:
    seen: list[tuple[float, Any]] = []
    ran(FakeBroker(), progress=lambda at, topics: seen.append((at, topics)))
    times = [at for at, _ in seen]
    assert all(0.49 < later - earlier < 0.52 for earlier, later in pairwise(times[3:9]))
    last = seen[-1][1][STEADY]
    assert (last["offered_messages"], last["receipts"], last["received"]) == (402, 402, 402)


SCENARIO_FILE = "tenants: {t: {topics: {n/x: {pattern: {kind: steady, rate: 10}}}}}"
ONLY_TOPIC = "persistent://t/n/x"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    faked = FakeBroker()
    time = FakeTime(faked.tick)

    def run_with_fakes(order: LoadOrder, around: Surroundings) -> Books:
        return run(order, Surroundings(time.clock, time.sleep, faked.clients, around.progress))

    monkeypatch.setattr(load_main, "run", run_with_fakes)
    return faked


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    file = tmp_path / "load.yaml"
    file.write_text(SCENARIO_FILE)
    return Request(file, "pulsar://proxy:6650", "pulsar://faked:6650", 2, 1, tmp_path / "counts.json", None)


def changed(request: Request, **changes: object) -> Request:
    return Request(**({name: getattr(request, name) for name in Request.__slots__} | changes))


def test_counts_are_written_and_nothing_is_said_when_all_went_well(
    faked: FakeBroker, request_: Request, capfd: Capture
) -> None:
    assert main(request_) == 0
    assert request_.out is not None
    assert json.loads(request_.out.read_text())["topics"][ONLY_TOPIC]["receipts"] == 21
    assert capfd.readouterr() == ("", "")


def test_a_lost_message_is_exit_code_3_and_a_line(faked: FakeBroker, request_: Request, capfd: Capture) -> None:
    faked.loses = ONLY_TOPIC
    assert main(request_) == 3
    assert capfd.readouterr().err == f"sluice load: {ONLY_TOPIC}: 21 receipts whose message did not arrive\n"


def test_without_out_the_counts_go_to_stdout(faked: FakeBroker, request_: Request, capfd: Capture) -> None:
    assert main(changed(request_, out=None)) == 0
    assert json.loads(capfd.readouterr().out)["verified"]


def test_json_prints_the_counts_beside_the_file_too(faked: FakeBroker, request_: Request, capfd: Capture) -> None:
    assert main(changed(request_, prints=True)) == 0
    assert request_.out is not None
    assert json.loads(capfd.readouterr().out) == json.loads(request_.out.read_text())


def test_live_lines_go_to_their_file(faked: FakeBroker, request_: Request, tmp_path: Path) -> None:
    assert main(changed(request_, live=str(tmp_path / "live.jsonl"))) == 0
    lines = (tmp_path / "live.jsonl").read_text().splitlines()
    assert len(lines) > 4
    assert json.loads(lines[-1])["topics"][ONLY_TOPIC]["received"] == 21


def test_live_lines_can_go_to_stdout(faked: FakeBroker, request_: Request, capfd: Capture) -> None:
    assert main(changed(request_, live="-")) == 0
    assert ONLY_TOPIC in json.loads(capfd.readouterr().out.splitlines()[0])["topics"]


def test_stdout_is_stdouts_again_afterwards(faked: FakeBroker, request_: Request, capfd: Capture) -> None:
    main(request_)
    os.write(1, b"still here\n")
    assert capfd.readouterr().out == "still here\n"


def test_the_collector_works_again_afterwards(faked: FakeBroker, request_: Request) -> None:
    main(request_)
    assert gc.isenabled()


def test_a_bad_scenario_is_exit_code_1_and_one_line_a_reason(request_: Request, capfd: Capture) -> None:
    request_.scenario.write_text(SCENARIO_FILE.replace("rate: 10", "rate: 0"))
    assert main(request_) == 1
    assert capfd.readouterr().err.count("\n") == 1


def test_an_out_file_that_cannot_be_written_is_named_before_the_run(
    faked: FakeBroker, request_: Request, capfd: Capture
) -> None:
    assert main(changed(request_, out=Path("/nowhere/counts.json"))) == 1
    assert "/nowhere/counts.json: No such file or directory" in capfd.readouterr().err
    assert faked.urls == []
