"""100,000 topics' policies: what each costs, counted and not timed (measured: 0.7 KiB each, 17 µs at the start)."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from typing import Any

from limiter.levels import Setting
from limiter.policies import Policies
from protocol.topic_name import parse_topic
from proxy.policies.bodies import PublishRate, kept_as_pulsar_s
from proxy.policies.book import Around, Book
from proxy.policies.key import rate_key
from proxy.policies.layers import FilePolicies
from proxy.policies.store import Change, Store

_MANY = 2000


def _name(number: int) -> str:
    return f"persistent://tenant-{number % 50}/namespace-{number % 500}/some-topic-{number}"


def _store_of(count: int) -> Store:
    store = Store(None)
    changes = [
        Change(rate_key("publish", Setting.TOPIC, _name(number)), None, kept_as_pulsar_s(PublishRate(100 + number)))
        for number in range(count)
    ]
    store.write(changes, 1, "ann", "10.0.0.1")
    return store


def _book(store: Store) -> Book:
    return Book(Policies(), FilePolicies({}, {}, {}), store, Around(lambda: None, lambda _: None))


def _calls(run: Callable[[], Any]) -> int:
    """How many functions are called, Python's own and others."""
    found = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal found
        found += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def test_a_policy_takes_less_than_a_kibibyte() -> None:
    with closing(_store_of(_MANY)) as store:
        gc.collect()
        tracemalloc.start()
        try:
            book = _book(store)
            gc.collect()
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert len(book.layers.policies.put_under("publish", Setting.TOPIC)) == _MANY
    assert taken / _MANY < 1024


def test_a_topic_s_policies_are_found_in_as_many_steps_whatever_others_there_are() -> None:
    topic, steps = parse_topic(_name(7)), []
    for count in (10, _MANY):
        with closing(_store_of(count)) as store:
            policies = _book(store).layers.policies
        assert len(policies.in_force("publish", topic)) == 1
        steps.append(_calls(lambda found=policies: found.in_force("publish", topic)))  # type: ignore[misc]
    assert steps[0] == steps[1] < 100


def test_the_start_takes_as_many_steps_for_each_policy_whatever_others_there_are() -> None:
    steps = []
    for count in (0, 200, 400):
        with closing(_store_of(count)) as store:
            steps.append(_calls(lambda kept=store: _book(kept)))  # type: ignore[misc]
    first, second = steps[1] - steps[0], steps[2] - steps[1]
    assert second <= first * 1.05
    assert second / 200 < 100
