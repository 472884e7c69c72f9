"""100,000 topics' policies: what each costs, and what a change of many does at once; counted and not timed."""

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import Awaitable
from contextlib import closing
from typing import Any

from limiter.levels import Setting
from limiter.policies import Change as PolicyChange
from limiter.policies import Policies, PolicyTarget, Value
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from proxy.policies.bodies import PublishRate, kept_as_pulsar_s
from proxy.policies.keys import PolicyKey, Principal, rate_key
from proxy.policies.layers import FilePolicies
from proxy.policies.service import LAID_AT_ONCE, NOTIFIED_AT_ONCE, Around, PolicyService
from proxy.policies.store import Store, StoredChange
from tests.proxy.calls import calls_of

_MANY = 2000


def _name(number: int) -> str:
    return f"persistent://tenant-{number % 50}/namespace-{number % 500}/some-topic-{number}"


def _store_of(count: int) -> Store:
    store = Store(None)
    changes = [
        StoredChange(
            rate_key("publish", Setting.TOPIC, _name(number)), None, kept_as_pulsar_s(PublishRate(100 + number))
        )
        for number in range(count)
    ]
    store.write(changes, 1, "ann", "10.0.0.1")
    return store


def _service(store: Store) -> PolicyService:
    return PolicyService(
        Policies(), FilePolicies({}, {}, {}), store, Around(lambda: (0, 0), lambda _changes, _now: None)
    )


def test_a_policy_takes_less_than_a_kibibyte() -> None:
    with closing(_store_of(_MANY)) as store:
        gc.collect()
        tracemalloc.start()
        try:
            service = _service(store)
            gc.collect()
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert len(service.layers.policies.by_name("publish", Setting.TOPIC)) == _MANY
    assert taken / _MANY < 1024


def test_a_topic_s_policies_are_found_in_as_many_steps_whatever_others_there_are() -> None:
    topic, steps = parse_topic(_name(7)), []
    for count in (10, _MANY):
        with closing(_store_of(count)) as store:
            policies = _service(store).layers.policies
        assert len(policies.in_force("publish", topic)) == 1
        steps.append(calls_of(lambda limits=policies: limits.in_force("publish", topic)))  # type: ignore[misc]
    assert steps[0] == steps[1] < 100


def test_the_start_takes_as_many_steps_for_each_policy_whatever_others_there_are() -> None:
    steps = []
    for count in (0, 200, 400):
        with closing(_store_of(count)) as store:
            steps.append(calls_of(lambda kept=store: _service(kept)))  # type: ignore[misc]
    first, second = steps[1] - steps[0], steps[2] - steps[1]
    assert second <= first * 1.05
    assert second / 200 < 100


class Loop(Policies):
    """Counts what is put into them in the thread of the event loop."""

    puts = 0

    def put(self, about: Any, setting: Setting, name: str, value: Value | None) -> None:
        assert threading.current_thread() is threading.main_thread()
        Loop.puts += 1
        super().put(about, setting, name, value)


class Watched:
    """A service, and what others see of it and are told while it changes."""

    def __init__(self, store: Store) -> None:
        Loop.puts = 0
        self.followed: list[PolicyChange] = []
        self.seen: set[int] = set()
        self.told: list[list[tuple[str, int]]] = [[]]
        self.policies = Loop()
        wall = iter(range(10**9))
        around = Around(lambda: (next(wall), 0), lambda changes, _now: self.followed.extend(changes), self._told)
        self.service = PolicyService(self.policies, FilePolicies({}, {}, {}), store, around, wall=wall.__next__)

    def change(self, count: int) -> None:
        asyncio.run(self._watch(self.service.change(_wanted(count), Principal("ann", ""))))

    def read(self, file: FilePolicies) -> None:
        asyncio.run(self._watch(self.service.take_file(file, lambda _before: None, lambda _seen, _at_ns: None)))

    def _told(self, change: StoredChange, _author: Principal, at: tuple[int, int]) -> None:
        self.told[-1].append((change.key.name, at[0]))

    async def _watch(self, changing: Awaitable[object]) -> None:
        change = asyncio.ensure_future(changing)
        while not change.done():
            await self._turn()
        await change
        while self.service._notifier._notifying is not None:
            await self._turn()

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        self.seen.add(len(self.policies.by_name("publish", Setting.TOPIC)))
        self.told.append([])


def _wanted(count: int) -> dict[PolicyKey, str | None]:
    kept = kept_as_pulsar_s(PublishRate(5))
    return {rate_key("publish", Setting.TOPIC, _name(number)): kept for number in range(count)}


_ALL_STREAMS = [PolicyChange("publish", Setting.PROXY, "")]


def test_a_change_of_little_is_laid_at_once_and_only_whom_it_concerns_follows() -> None:
    with closing(Store(None)) as store:
        watched = Watched(store)
        watched.change(LAID_AT_ONCE)
    assert Loop.puts == len(watched.followed) == LAID_AT_ONCE


def test_large_change_is_laid_aside_and_seen_whole_or_not_at_all() -> None:
    with closing(Store(None)) as store:
        watched = Watched(store)
        watched.change(_MANY)
    assert (Loop.puts, watched.seen, watched.followed) == (0, {0, _MANY}, _ALL_STREAMS)


def test_a_change_of_much_is_told_in_slices_in_its_order_and_with_one_time() -> None:
    with closing(Store(None)) as store:
        watched = Watched(store)
        watched.change(_MANY)
    changes = [change for slice_ in watched.told for change in slice_]
    assert [name for name, _ in changes] == [_name(number) for number in range(_MANY)]
    assert len({at_ns for _, at_ns in changes}) == 1
    assert max(len(slice_) for slice_ in watched.told) == NOTIFIED_AT_ONCE


def test_another_file_with_much_is_seen_whole_or_not_at_all() -> None:
    places: list[PolicyTarget] = [("publish", Setting.TOPIC, _name(number)) for number in range(_MANY)]
    with closing(Store(None)) as store:
        watched = Watched(store)
        watched.read(FilePolicies({place: Value(Limit(rate(5)), "file") for place in places}, {}, {}))
        watched.read(FilePolicies({}, {}, {}))
    assert (Loop.puts, watched.seen, watched.followed) == (0, {0, _MANY}, _ALL_STREAMS * 2)


def test_who_looks_at_all_there_is_waits_for_a_change_that_is_under_way() -> None:
    async def look(service: PolicyService) -> list[int]:
        changing = asyncio.ensure_future(service.change(_wanted(_MANY), Principal("ann", "")))
        for _ in range(3):
            await asyncio.sleep(0)  # until it has its turn
        count = await service.look(lambda contents: len(contents.layers.policies.by_name("publish", Setting.TOPIC)))
        return [count, await changing]

    with closing(Store(None)) as store:
        assert asyncio.run(look(Watched(store).service)) == [_MANY, _MANY]
