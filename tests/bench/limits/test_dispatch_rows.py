"""What is read from each load of deliveries: a figure that is wrong would be seen here."""

import math
from secrets import token_hex

import pytest

from bench.limits.dispatch_rows import (
    BACKLOG,
    BATCH,
    BATCHES,
    BESIDE_FIGURES,
    GAP,
    GROUP_COUNT,
    GROUP_FIGURES,
    LARGE,
    SIZES,
    SIZES_LIMIT,
    SMALL,
    TOPICS,
    TWENTY,
    NotedSender,
    SteadyPublisher,
    backlog,
    batches,
    beside,
    gap,
    group,
    sizes,
    twenty,
)
from bench.limits.trial import EVEN, FREE_RATE, GROUP_LIMIT, Times
from loadgen.load.clients import Clients
from loadgen.load.offering import Settle


def missed_of(figures, sample):
    """The keys whose goal is missed by one sample."""
    rounds = {"Sluice": [sample]}
    return {figure.key for figure in figures for goal in figure.goals if not figure.is_met(goal, rounds, "Sluice")}


def lumps(seconds: int) -> list[float]:
    return [float(second) for second in range(seconds) for _ in range(EVEN)]


def evenly(seconds: int) -> list[float]:
    return [number / EVEN for number in range(seconds * EVEN)]


def test_what_flows_evenly_meets_every_goal():
    sample = backlog(evenly(6), [], 6)
    assert not missed_of(BACKLOG, sample) - {"pause"}
    assert sample["first"] == sample["mean"] == 1.0
    assert sample["gap"] == pytest.approx(2.0)
    assert sample["excess"] == pytest.approx(-49)


def test_lumps_keep_the_rate_and_leave_a_second_between_them():
    sample = backlog(lumps(6), [], 6)
    assert sample["mean"] == 1.0
    assert sample["worst"] == pytest.approx(0.0)
    assert sample["gap"] == pytest.approx(1000)
    assert sample["excess"] == pytest.approx(EVEN - 50)


def test_twice_the_limit_in_the_first_second_is_seen():
    sample = backlog(sorted([0.5] * EVEN + evenly(6)), [], 6)
    assert sample["first"] == 2.0
    assert sample["mean"] == 1.0


def test_a_standstill_of_the_consumer_is_no_gap():
    times = [at for at in evenly(6) if not 3 <= at < 3.1]
    assert backlog(times, [], 6)["gap"] == pytest.approx(102)
    assert backlog(times, [(3.0, 3.095)], 6)["gap"] == pytest.approx(7)


def test_silence_is_no_crash_and_no_success():
    sample = backlog([], [], 6)
    assert sample["mean"] == 0.0
    assert sample["gap"] == math.inf


def test_one_every_ten_milliseconds_is_even():
    sample = gap([number / 100 for number in range(300)], [], 3)
    assert sample == {key: pytest.approx(10) for key in ("gap", "p99", "p50")}


def test_a_lump_a_second_is_not_though_most_of_its_messages_are_close():
    sample = gap([float(second) for second in range(3) for _ in range(100)], [], 3)
    assert sample == {"gap": 1000.0, "p99": 0.0, "p50": 0.0}


def test_a_single_silence_is_the_gap():
    times = [number / 100 for number in range(300) if not 100 <= number < 120]
    sample = gap(times, [], 3)
    assert sample["gap"] == pytest.approx(210)
    assert sample["p50"] == pytest.approx(10)


def test_nothing_at_all_is_the_longest_gap():
    assert gap([], [], 3)["gap"] == math.inf


def in_batches(*at: float) -> list[float]:
    return [each for each in at for _ in range(BATCH)]


def test_a_batch_every_half_second_meets_every_goal():
    sample = batches(in_batches(0, *(0.4 + 0.5 * number for number in range(20))), 10)
    assert not missed_of(BATCHES, sample)
    assert sample["first"] == 1.5
    assert sample["mean"] == pytest.approx(1.05)


def test_a_receiver_queue_at_once_is_ten_times_the_limit_and_a_long_silence():
    sample = batches([0.0] * 1000 + [9.5] * 1000, 10)
    assert sample["first"] == 10.0
    assert sample["silence"] == pytest.approx(9.5)
    assert sample["excess"] == pytest.approx(2000 - 950 - 10 - BATCH)
    assert missed_of(BATCHES, sample) == {
        "first",
        "excess",
        "silence",
    }


def test_large_messages_count_by_their_bytes():
    arrivals = [(number * LARGE / SIZES_LIMIT, LARGE) for number in range(200)]
    sample = sizes(arrivals, 10)
    assert sample["first"] == sample["worst"] == sample["mean"] == pytest.approx(1.0)
    assert not missed_of(SIZES, sample)


def test_large_ones_read_as_if_they_were_small_are_seen():
    sample = sizes([(0.0, SMALL)] * 1000 + [(0.5, LARGE)] * 100 + [(6.0, LARGE)] * 20, 10)
    assert sample["first"] == sample["worst"] == pytest.approx(5.1)
    assert sample["excess"] == pytest.approx(5000 - 100 - 50)
    assert missed_of(SIZES, sample)


def test_the_worst_second_need_not_be_the_first():
    sample = sizes([(0.0, SMALL), (3.5, LARGE), (3.6, LARGE)], 10)
    assert sample["first"] == pytest.approx(SMALL / SIZES_LIMIT)
    assert sample["worst"] == pytest.approx(2 * LARGE / SIZES_LIMIT)


def test_a_limit_that_is_kept_is_a_mean_of_one():
    sample = group([number / GROUP_LIMIT for number in range(11 * GROUP_LIMIT)], 10)
    assert sample == {key: pytest.approx(1.0) for key in ("first", "mean", "settled")}
    assert not missed_of(GROUP_FIGURES, sample)


def test_a_backlog_drained_at_once_is_no_rate_of_more_than_a_second():
    sample = group([number / 10_000 for number in range(TOPICS * GROUP_COUNT)], 10)
    assert sample["mean"] == sample["first"] == TOPICS * GROUP_COUNT / GROUP_LIMIT
    assert "settled" not in sample


def test_the_silence_behind_a_drained_backlog_makes_the_mean_no_better():
    times = [2 * number / (TOPICS * GROUP_COUNT - 1) for number in range(TOPICS * GROUP_COUNT)]
    sample = group(times, 10)
    assert sample["mean"] == pytest.approx(TOPICS * GROUP_COUNT / 2 / GROUP_LIMIT)
    assert sample["settled"] == pytest.approx(TOPICS * GROUP_COUNT / 2 / GROUP_LIMIT)


def test_what_is_withheld_behind_the_first_second_misses_a_goal():
    burst = [number / GROUP_LIMIT for number in range(GROUP_LIMIT)]
    sample = group([*burst, *(1 + number / (0.98 * GROUP_LIMIT) for number in range(10 * GROUP_LIMIT))], 10)
    assert sample["settled"] == pytest.approx(0.98, abs=0.002)
    assert missed_of(GROUP_FIGURES, sample) == {"settled"}


def test_silence_is_no_crash_of_group():
    assert group([], 10) == {"first": 0.0, "mean": 0.0, "settled": 0.0}


def test_shares_count_once_all_consumers_are_connected():
    early = [10.0, *[11 + number / 10 for number in range(50)]]
    late = [11.05 + number / 10 for number in range(50)]
    sample = twenty([early, late], 10.5, 6)
    assert sample["jain"] == pytest.approx(1.0)
    assert sample["least"] == sample["most"] == pytest.approx(100)
    assert sample["mean"] == pytest.approx(100 / 5 / 50)


def test_a_burst_does_not_make_up_for_what_is_missing_later():
    times = [10.0] * 100 + [11 + number / 48 for number in range(10 * 48)]
    sample = twenty([times], 10.0, 11)
    assert sample["mean"] == pytest.approx(48 / 50)
    assert missed_of(TWENTY, sample) == {"mean"}


def test_one_that_gets_everything_is_seen():
    sample = twenty([[10.0, 10.5, 11.0], []], 9.0, 2)
    assert sample["jain"] == 0.5
    assert (sample["least"], sample["most"]) == (0.0, 200.0)


def test_a_last_consumer_that_came_after_the_end_leaves_no_share_and_no_crash():
    assert twenty([[10.0], []], 13.0, 2)["jain"] == 0.0
    assert twenty([[], []], 13.0, 2)["mean"] == 0.0


TIMES = Times(alone=1, held=2, beside=3, end=4)


def test_latencies_of_beside_are_compared_by_when_the_message_was_sent():
    sent = [0.5, 1.5, 2.5, 3.5]
    arrived = {0: 0.9, 1: 1.502, 2: 2.9, 3: 3.503}
    sample = beside(TIMES, sent, arrived)
    assert sample["p50_alone"] == sample["p99_alone"] == pytest.approx(2)
    assert sample["p50_beside"] == sample["p99_beside"] == pytest.approx(3)
    assert sample["ratio"] == pytest.approx(1.5)
    assert sample["rate"] == pytest.approx(100 / FREE_RATE)
    assert {*sample, "held"} == {figure.key for figure in BESIDE_FIGURES}


def test_what_never_arrived_is_slower_than_all_that_did():
    sample = beside(TIMES, [1.5, 3.1, 3.2, 3.3], {0: 1.502, 1: 3.101})
    assert sample["p50_beside"] == sample["ratio"] == math.inf


def test_when_a_message_was_sent_is_noted_before_the_client_has_it():
    seen: list[int] = []

    class Client:
        def send(self, payload: bytes, settle: Settle) -> None:
            seen.append(len(noted.sent))
            settle("")

    noted = NotedSender(Client())
    for _ in range(3):
        noted.send(b"", lambda _error: None)
    assert seen == [1, 2, 3]


def test_the_publisher_goes_on_where_it_stopped(service_url):
    with Clients(service_url) as clients:
        publisher = SteadyPublisher(clients, f"persistent://public/default/{token_hex(4)}", 60)
        publisher.go_on_until(0.1)
        before = len(publisher.sent)
        publisher.go_on_until(0.2)
    assert 0 < before < len(publisher.sent) <= (publisher.sent[-1] - publisher.began) * FREE_RATE + 1
    assert publisher.sent == sorted(publisher.sent)


@pytest.mark.parametrize(
    ("sample", "figures"),
    [
        ({**backlog([1.0], [], 5), "pause": 0}, BACKLOG),
        ({**gap([1.0], [], 3), "pause": 0}, GAP),
        (batches([1.0], 3), BATCHES),
        (sizes([(1.0, SMALL)], 3), SIZES),
        (group([1.0], 3), GROUP_FIGURES),
        (twenty([[1.0]], 0.0, 3), TWENTY),
    ],
    ids=["backlog", "gap", "batches", "sizes", "group", "twenty"],
)
def test_sample_has_each_figure_of_its_row(sample, figures):
    assert set(sample) == {figure.key for figure in figures}
