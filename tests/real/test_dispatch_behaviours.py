"""Consumers under a dispatch limit lose, duplicate and block nothing, whatever becomes of their subscription."""

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from loadgen.real.standalone import StandaloneBroker
from tests.real.arrivals import Line
from tests.real.conftest import IS_DIRECT
from tests.real.consumer_scenes import (
    ACKNOWLEDGED,
    LATE,
    SOUGHT,
    close_and_come_again,
    failover,
    key_shared_joined,
    key_shared_left,
    leave_to_others,
    negative_acks,
    redeliver_all,
    seek_by_id,
    seek_by_time,
    seek_to_end,
    unacked_timeout,
    unload,
    unsubscribe,
)
from tests.real.intake import Act, first_times, overtaking, runs
from tests.real.performance import Performance
from tests.real.pulsar_rest import TENANT, topic_name
from tests.real.sluice_process import SluiceProcess
from tests.real.stages import Stage
from tests.real.steadiness import assert_never_above, in_bytes

pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_DIRECT, reason="the broker itself has not Sluice's limits")]

NAMESPACE = "dispatch-behaviours"
LIMIT = 100
SLOW, BATCH = 20, 10
MANY = 3000
"""Half a minute's worth: a seek takes less."""
BATCHED = ("redeliver all",)
"""Where an entry is held for half a second."""
IN_BATCHES = {"batching_max_messages": BATCH, "batching_max_publish_delay_ms": 1000}
BYTES = 12_000
"""Per second: some seventy messages."""
KEYS = 20
SWITCHES = 4
"""Of the active consumer: two close, and come again."""
EARLY = 7
"""Permits of one of three consumers that wait: its share of a fifth of a second."""
SCENES = {
    "negative acks": (negative_acks, 300),
    "unacked timeout": (unacked_timeout, 400),
    "redeliver all": (redeliver_all, 120),
    "seek by id": (seek_by_id, 200),
    "seek, bytes": (seek_by_id, 200),
    "seek by time": (seek_by_time, LATE),
    "seek to end": (seek_to_end, MANY),
    "unsubscribe": (unsubscribe, 150),
    "close": (close_and_come_again, 200),
    "close, bytes": (close_and_come_again, 200),
    "leave": (leave_to_others, 300),
    "unload": (unload, 300),
    "unload, bytes": (unload, 300),
    "failover": (failover, 400),
    "key shared, joined": (key_shared_joined, 300),
    "key shared, left": (key_shared_left, 300),
}


def topic(name: str) -> str:
    return topic_name(NAMESPACE, name.replace(",", "").replace(" ", "-"))


CONFIG = {
    "limits": {
        "namespaces": {f"{TENANT}/{NAMESPACE}": {"dispatch": {"messages": LIMIT}}},
        "topics": {
            **{topic(name): {"dispatch": {"bytes": BYTES}} for name in SCENES if name.endswith("bytes")},
            **{topic(name): {"dispatch": {"messages": SLOW}} for name in BATCHED},
        },
    }
}


def opened(name: str, stage: Stage) -> Callable[[], Act]:
    play, count = SCENES[name]
    options: dict[str, Any] = {"batching_enabled": True, **IN_BATCHES} if name in BATCHED else {}
    return partial(play, Act(stage, topic(name)).fill(count, keys=0 if options else KEYS, **options))


@pytest.fixture(scope="module")
def played(sluice_proxy: SluiceProcess, real_broker: StandaloneBroker) -> Performance[Act]:
    return Performance(sluice_proxy, real_broker, NAMESPACE, {name: partial(opened, name) for name in SCENES})


@pytest.mark.parametrize("name", SCENES)
def test_the_limit_was_felt_and_kept(played: Performance[Act], name: str) -> None:
    act, begun = played[name], played.begun[name]
    assert played.watch.most_held[topic(name)] > 0
    assert played.watch.most_withheld[topic(name)] > 0
    if name.endswith("bytes"):
        line = Line(BYTES, burst=BYTES / 10, entry=2 * act.entry_bytes)  # some are longer by a few bytes
        assert_never_above(in_bytes(act.arrivals, act.entry_bytes), line, begun)
    elif name in BATCHED:
        assert_never_above(act.arrivals, Line(SLOW, burst=SLOW / 10, entry=BATCH), begun)
    else:
        assert_never_above(act.arrivals, Line(LIMIT, burst=LIMIT / 10), begun)


@pytest.mark.parametrize("name", SCENES)
def test_the_broker_has_every_acknowledgement(played: Performance[Act], name: str) -> None:
    assert played[name].backlog == 0


@pytest.mark.parametrize("name", ["close", "close, bytes"])
def test_who_closes_and_comes_again_goes_on_where_it_was(played: Performance[Act], name: str) -> None:
    played[name].assert_each_once_in_order()


@pytest.mark.parametrize(("name", "every"), [("negative acks", 3), ("unacked timeout", 10)])
def test_what_is_not_acknowledged_comes_once_more(played: Performance[Act], name: str, every: int) -> None:
    act = played[name]
    copies = Counter(act.indexes)
    assert [index for index in copies if index % every and copies[index] > 1] == []
    assert [index for index in range(0, len(act.sent), every) if copies[index] < 2] == []
    as_sent = Counter((taken.mark, taken.message.redelivery_count()) for taken in act.log)
    assert max(as_sent.values()) == 1, "one that the broker has sent once"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("redeliver all", ACKNOWLEDGED),
        ("seek by id", SOUGHT),
        ("seek, bytes", SOUGHT),
        ("seek by time", LATE),
        ("unsubscribe", 0),
    ],
)
def test_who_goes_back_gets_all_from_there_without_a_gap(played: Performance[Act], name: str, place: int) -> None:
    """And before it nothing but what came before it."""
    act = played[name]
    before, after = runs(act.indexes)
    assert before[0] == 0
    assert after == (place, len(act.sent) - 1)


def test_who_goes_to_the_end_gets_nothing_of_what_was_held(played: Performance[Act]) -> None:
    act = played["seek to end"]
    before, after = runs(act.indexes)
    assert before[0] == 0
    assert before[1] < MANY - LIMIT
    assert after == (MANY, MANY + 4)


def test_what_a_client_leaves_behind_comes_to_the_others(played: Performance[Act]) -> None:
    """Twice comes what the one that left had received, where the broker did not know yet that it is acknowledged."""
    act = played["leave"]
    assert set(act.indexes) == set(range(len(act.sent)))
    staying = act.by[-1]
    takers = defaultdict(list)
    for index, name in zip(act.indexes, act.by, strict=True):
        takers[index].append(name)
    twice = [names for names in takers.values() if len(names) > 1]
    # In whatever order: the thread of the one that leaves may note its last message late.
    assert [names for names in twice if sorted(name == staying for name in names) != [False, True]] == []
    ((taken, confirmed),) = act.confirmed
    last = max(place for place, name in enumerate(act.by) if name != staying)
    assert len(twice) <= max(taken, last + 1) - confirmed


@pytest.mark.parametrize("name", ["unload", "unload, bytes"])
def test_a_topic_that_the_broker_lets_go_of_goes_on_in_order(played: Performance[Act], name: str) -> None:
    """Twice comes what the broker did not know yet to be acknowledged."""
    act = played[name]
    assert first_times(act.indexes) == list(range(len(act.sent)))
    first, *others = runs(act.indexes)
    assert len(others) <= 2
    assert all(begin <= end for (_, end), (begin, _) in zip([first, *others], others, strict=False))
    act.assert_confirmed_come_once()


def test_failover_goes_on_in_order_whoever_is_active(played: Performance[Act]) -> None:
    """Twice comes what the broker did not know yet to be acknowledged.

    Pulsar 4.0.8 may send to the next consumer before it goes back to what the one before had not acknowledged: as many
    as it has permits, which here are few.
    """
    act = played["failover"]
    assert set(act.indexes) == set(range(len(act.sent)))
    assert len(overtaking(first_times(act.indexes))) <= SWITCHES * EARLY
    assert len(set(act.by)) > 1
    act.assert_confirmed_come_once(EARLY)


def test_each_key_keeps_its_order_while_a_consumer_joins(played: Performance[Act]) -> None:
    act = played["key shared, joined"]
    act.assert_each_once()
    assert set(act.by) == {"stays", "goes", "joins"}
    assert all(of_key == sorted(of_key) for of_key in by_key(act.indexes))


def test_what_a_leaving_consumer_of_a_key_had_not_acknowledged_comes_again(played: Performance[Act]) -> None:
    """The broker, also without Sluice (6 of 90 runs), may give that in another order, or twice: as much as one had."""
    act = played["key shared, left"]
    assert set(act.indexes) == set(range(len(act.sent)))
    assert len(act.indexes) - len(act.sent) <= EARLY
    assert sum(len(overtaking(first_times(of_key))) for of_key in by_key(act.indexes)) <= EARLY


def by_key(indexes: list[int]) -> list[list[int]]:
    return [[index for index in indexes if index % KEYS == key] for key in range(KEYS)]


def test_nothing_is_held_and_nobody_is_left_when_all_have_gone(played: Performance[Act]) -> None:
    totals, held_bytes = played.left
    assert set(totals.values()) == {0}
    assert held_bytes == 0
