import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from limiter.levels import Setting
from limiter.names import MOST_FORMS
from limiter.policies import Change, Policies, PolicyTarget, Value
from limiter.token_bucket import Limit, rate
from proxy.policies.bodies import BodyError, PublishRate, kept_as_own, kept_as_pulsar_s
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, Principal, rate_key
from proxy.policies.layers import FilePolicies
from proxy.policies.service import LAID_AT_ONCE, MOST_FOLLOWED, Around, PolicyService
from proxy.policies.store import Store, StoredChange, StoreError
from tests.proxy.policies.layered import ANN, a_service

_ANN, _BOB = Principal("ann", "10.0.0.1"), Principal("bob", "")
_PLACE: PolicyTarget = ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
_KEY = rate_key(*_PLACE)
_GROUP = PolicyKey(PolicyKind.GROUP, "", "gold")
_EMPTY = FilePolicies({}, {}, {})
_MANY = {
    rate_key("publish", Setting.TOPIC, f"persistent://acme/shop/{number}"): kept_as_pulsar_s(PublishRate(5))
    for number in range(LAID_AT_ONCE + 1)
}


class Shelf:
    """A service over a store that outlives it."""

    def __init__(self, store: Store, file: FilePolicies = _EMPTY) -> None:
        self.store = store
        self.events: list[str] = []
        self.policies = Policies()
        around = Around(self._before, self._after, on_degraded=lambda: self.events.append("degraded, or no more"))
        self.service = PolicyService(self.policies, file, store, around, wall=lambda: 1)

    def set(self, key: PolicyKey, kept: str | None) -> None:
        asyncio.run(self.service.change({key: kept}, _ANN))

    def take(self, file: FilePolicies) -> bool:
        async def take() -> bool:
            return await self.service.take_file(file, lambda _before: None, lambda _seen, _at_ns: None)

        return asyncio.run(take())

    def messages(self, place: PolicyTarget = _PLACE) -> int | None:
        value = self.policies.get(*place)
        return value.limit.messages.tokens if value and value.limit.messages else None

    def _before(self) -> tuple[int, int]:
        self.events.append(f"before, {self.messages()} in force")
        return 1, 2

    def _after(self, changes: list[Change], now: int) -> None:
        assert now == 2
        names = [f"{change.about} {change.setting} {change.name}" for change in changes]
        self.events.append(f"after, {self.messages()} in force, changed: {names}")


@contextlib.contextmanager
def shelf(file: FilePolicies = _EMPTY, path: Path | None = None) -> Iterator[Shelf]:
    store = Store(path)
    try:
        yield Shelf(store, file)
    finally:
        store.close()


def publish(messages: int) -> str:
    return kept_as_pulsar_s(PublishRate(messages, -1))


def file_says(limit: Limit, place: PolicyTarget = _PLACE) -> FilePolicies:
    return FilePolicies({place: Value(limit, "file")}, {}, {})


def test_a_change_is_told_around_and_says_what_changed() -> None:
    with shelf() as run:
        run.set(_KEY, publish(20))

        changed = ["publish topic_of_namespace acme/shop"]
        assert run.events == ["before, None in force", f"after, 20 in force, changed: {changed}"]


def test_whose_resource_group_is_another_has_changed_in_both_directions() -> None:
    with shelf() as run:
        run.set(PolicyKey(PolicyKind.ATTACHMENT, "namespace", "acme/shop"), "gold")

        changed = ["publish namespace acme/shop", "dispatch namespace acme/shop"]
        assert run.events[-1] == f"after, None in force, changed: {changed}"


def test_a_file_tells_what_changed_and_what_is_hidden_has_not() -> None:
    with shelf() as run:
        run.set(_KEY, publish(20))
        total: PolicyTarget = ("dispatch", Setting.NAMESPACE, "acme/shop")
        limits = {_PLACE: Value(Limit(rate(1)), "file"), total: Value(Limit(rate(2)), "file")}
        run.take(FilePolicies(limits, {}, {}))

        assert run.events[-1] == "after, 20 in force, changed: ['dispatch namespace acme/shop']"


def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    with shelf(path=tmp_path / "p.db") as run:
        run.set(_KEY, publish(20))
        run.set(_GROUP, kept_as_group(5))
        run.set(PolicyKey(PolicyKind.ATTACHMENT, "namespace", "acme/shop"), "gold")
        run.set(PolicyKey(PolicyKind.DYNAMIC, "", "maxPublishRatePerTopicInMessages"), "7")

    with shelf(path=tmp_path / "p.db") as run:
        assert run.messages() == 20
        assert run.messages(("publish", Setting.RESOURCE_GROUP, "gold")) == 5
        assert run.policies.groups_of_namespaces == {"acme/shop": "gold"}
        assert run.messages(("publish", Setting.TOPIC_OF_BROKER, "")) == 7


def test_what_is_as_wanted_already_is_no_change() -> None:
    with shelf() as run:
        run.set(_KEY, publish(20))
        count = len(run.events)

        assert asyncio.run(run.service.change({_KEY: publish(20)}, _ANN)) == 0
        assert len(run.events) == count
        assert len(run.store.audited(10)) == 1


def test_of_a_change_with_one_bad_body_nothing_holds() -> None:
    with shelf() as run:
        other = PolicyKey(PolicyKind.DYNAMIC, "", "maxPublishRatePerTopicInMessages")

        with pytest.raises(BodyError, match="'many' is not a whole number"):
            asyncio.run(run.service.change({_KEY: publish(20), other: "many"}, _ANN))

        assert (run.events, list(run.store.policies())) == ([], [])


def test_what_cannot_be_written_does_not_come_into_force() -> None:
    with shelf() as run:
        run.store.close()

        with pytest.raises(StoreError):
            run.set(_KEY, publish(20))

        assert run.messages() is None


def test_a_change_comes_into_force_although_who_wanted_it_has_hung_up() -> None:
    async def hang_up(service: PolicyService) -> None:
        wanting = asyncio.get_running_loop().create_task(service.change({_KEY: publish(20)}, _ANN))
        await asyncio.sleep(0)
        wanting.cancel()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    with shelf() as run:
        asyncio.run(hang_up(run.service))

        assert run.store.read(_KEY) == publish(20)
        assert run.messages() == 20


@pytest.mark.parametrize(("mode", "after"), [("observe", "enforce"), ("enforce", "observe")])
def test_numbers_set_by_pulsar_s_tools_keep_the_mode_of_the_file(mode: str, after: str) -> None:
    with shelf(file_says(Limit(rate(1), mode=mode))) as run:  # type: ignore[arg-type]
        run.set(_KEY, publish(20))
        assert run.policies.get(*_PLACE) == Value(Limit(rate(20), mode=mode), "rest")  # type: ignore[arg-type]

        run.take(file_says(Limit(rate(1), mode=after)))  # type: ignore[arg-type]
        assert run.policies.get(*_PLACE) == Value(Limit(rate(20), mode=after), "rest")  # type: ignore[arg-type]


def test_a_body_of_sluice_s_own_says_burst_and_mode() -> None:
    with shelf(file_says(Limit(rate(1), mode="observe"))) as run:
        run.set(_KEY, kept_as_own({"messages": "30/min", "burst_messages": 5, "mode": "enforce"}))

        assert run.policies.get(*_PLACE) == Value(Limit(rate(30, 60 * 10**9, 5)), "rest")


def test_a_file_that_says_the_same_changes_nothing() -> None:
    with shelf(file_says(Limit(rate(1)))) as run:
        assert not run.take(file_says(Limit(rate(1))))
        assert run.take(file_says(Limit(rate(2))))
        changed = ["publish topic_of_namespace acme/shop"]
        assert run.events == ["before, 1 in force", f"after, 2 in force, changed: {changed}"]


def test_a_file_that_only_attaches_others_changes_something() -> None:
    with shelf(FilePolicies({}, {}, {"acme/shop": "silver"})) as run:
        assert run.take(FilePolicies({}, {"acme": "silver"}, {"acme/shop": "gold"}))
        assert run.policies.groups_of_namespaces == {"acme/shop": "gold"}
        assert run.policies.groups_of_tenants == {"acme": "silver"}


def test_the_file_s_attachment_holds_again_when_the_other_is_taken_back() -> None:
    with shelf(FilePolicies({}, {}, {"acme/shop": "silver"})) as run:
        key = PolicyKey(PolicyKind.ATTACHMENT, "namespace", "acme/shop")
        run.set(key, "gold")
        assert run.policies.groups_of_namespaces == {"acme/shop": "gold"}

        run.set(key, None)
        assert run.policies.groups_of_namespaces == {"acme/shop": "silver"}


def kept_as_group(messages: int) -> str:
    return f'{{"publishRateInMsgs":{messages}}}'


def test_of_a_topic_s_two_values_the_local_one_holds() -> None:
    topic = "persistent://acme/shop/orders"
    place: PolicyTarget = ("publish", Setting.TOPIC, topic)
    with shelf() as run:
        run.set(rate_key(*place, Layer.GLOBAL), publish(30))
        assert run.messages(place) == 30
        assert run.events[-1].endswith(f"changed: ['publish topic {topic}']")

        run.set(rate_key(*place), publish(20))
        assert run.messages(place) == 20

        run.set(rate_key(*place), None)
        assert run.messages(place) == 30


def test_a_file_under_which_what_is_kept_cannot_be_read_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    other: PolicyTarget = ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/zoo")
    with shelf(
        FilePolicies({other: Value(Limit(rate(1)), "file"), _PLACE: Value(Limit(rate(1)), "file")}, {}, {})
    ) as kept:
        kept.set(rate_key(*_PLACE), kept_as_pulsar_s(PublishRate(9)))
        kept.events.clear()

        def broken(_key: PolicyKey) -> str:
            raise StoreError("the disk is ill")

        monkeypatch.setattr(kept.store, "read", broken)
        with pytest.raises(StoreError):
            kept.take(
                FilePolicies({other: Value(Limit(rate(2)), "file"), _PLACE: Value(Limit(rate(2)), "file")}, {}, {})
            )
        assert (kept.events, kept.messages(other), kept.messages()) == ([], 1, 9)


def test_a_store_that_takes_no_change_is_a_degraded_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_change: object) -> None:
        raise StoreError("database or disk is full")

    with shelf() as kept:
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(kept.store, "write", full)
            for _ in range(3):
                with pytest.raises(StoreError):
                    kept.set(_KEY, publish(20))
        assert [log["error"] for log in logs] == ["database or disk is full"]
        assert kept.events == ["degraded, or no more"]
        assert [state.cause for state in kept.service.degraded()] == ["policies_not_stored"]
        kept.set(_KEY, None)
        assert list(kept.service.degraded()), "nothing was to be stored"
        kept.set(_KEY, publish(20))
        assert kept.events[1] == "degraded, or no more"
        assert not list(kept.service.degraded())


def test_what_cannot_be_got_ready_is_not_written_so_it_can_be_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with shelf() as kept:
        with monkeypatch.context() as patch:
            patch.setattr(kept.service, "copy", lambda: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                asyncio.run(kept.service.change(_MANY, _ANN))
        assert not list(kept.store.policies())
        assert asyncio.run(kept.service.change(_MANY, _ANN)) == LAID_AT_ONCE + 1
        assert len(kept.policies.by_name("publish", Setting.TOPIC)) == LAID_AT_ONCE + 1


def test_a_file_is_compared_when_it_is_its_turn() -> None:
    """A change of much that comes between takes away what a thread would have been looking at."""
    file = {_PLACE: Value(Limit(rate(1)), "file")}
    with shelf(FilePolicies(file, {}, {})) as kept:
        compared: list[int] = []

        async def both() -> None:
            change = asyncio.ensure_future(kept.service.change(_MANY, _ANN))
            for _ in range(2):
                await asyncio.sleep(0)
            assert kept.service._turn.locked()
            await kept.service.take_file(
                _EMPTY, lambda before: compared.append(len(before.values)), lambda _seen, _at_ns: None
            )
            assert change.done()

        asyncio.run(both())
        assert (compared, kept.messages()) == ([1], None)


def test_it_is_closed_when_what_is_under_way_is_in_force_and_told() -> None:
    changes: list[StoredChange] = []
    store = Store(None)
    around = Around(lambda: (0, 0), lambda _changes, _now: None, lambda change, _author, _at_ns: changes.append(change))

    async def close_within() -> None:
        service = PolicyService(policies := Policies(), _EMPTY, store, around)
        change = asyncio.ensure_future(service.change(_MANY, _ANN))
        await asyncio.sleep(0)
        await service.close()
        assert change.done()
        assert len(policies.by_name("publish", Setting.TOPIC)) == len(changes) == len(_MANY)

    asyncio.run(close_within())


def test_patterns_set_at_run_time_have_few_forms() -> None:
    def set_limit(tenant: str) -> None:
        key = rate_key("publish", Setting.NAMESPACE, f"{tenant}/*")
        asyncio.run(service.change({key: kept_as_own({"messages": 5})}, ANN))

    service = a_service(FilePolicies({}, {}, {}), {})
    with closing(service.store):
        for length in range(MOST_FORMS - 1):
            set_limit(f"{'a' * length}*")
        set_limit("acme")
        with pytest.raises(BodyError, match="have patterns of 16 forms"):
            set_limit("b" * 64 + "*")
        for tenant in ("other", "aa*", "bb*"):
            set_limit(tenant)  # of a form that others have


async def test_change_of_the_process_with_the_store_is_followed(tmp_path: Path) -> None:
    with shelf(path=tmp_path / "p.db") as lent:
        lent.store.lend()
        with pytest.raises(StoreError, match="takes over"):
            await lent.service.change({_KEY: publish(10)}, _ANN)
        with capture_logs() as logs:
            lent.service.follow(StoredChange(_KEY, None, publish(20)), _ANN)
            lent.service.follow(StoredChange(_KEY, publish(20), publish(30)), Principal("bob", ""))
            for key, kept in _MANY.items():
                lent.service.follow(StoredChange(key, None, kept), _ANN)
            lent.service.follow(StoredChange(_KEY, publish(30), "no body"), _ANN)
            lent.service.follow(StoredChange(rate_key("publish", Setting.TENANT, "acme"), None, publish(1)), _ANN)
            await lent.service.close()
        assert lent.messages() == 30
        assert [lent.policies.get("publish", Setting.TOPIC, key.name) is not None for key in _MANY] == [True] * len(
            _MANY
        )
        assert lent.policies.get("publish", Setting.TENANT, "acme") is not None, "a body that is none keeps none out"
        changed = [line["by"] for line in logs if line["event"] == "policy changed"]
        assert changed == ["ann", "bob", *["ann"] * (len(_MANY) + 1)]
        refused = [line["policy"] for line in logs if line["log_level"] == "warning"]
        assert refused == [str(_KEY)]
        assert lent.store.room.problem("acme", 0, 0) == ""


async def test_store_brings_back_changes_that_were_not_followed(tmp_path: Path) -> None:
    gone, kept = (rate_key("publish", Setting.TENANT, name) for name in ("gone", "kept"))
    with shelf(path=tmp_path / "p.db") as lent:
        await lent.service.change({gone: publish(1), kept: publish(2)}, _ANN)
        lent.store.lend()
        with shelf(path=tmp_path / "p.db") as other:
            await other.service.change({_KEY: publish(20), gone: None}, _ANN)
            await other.service.change({kept: publish(3)}, _ANN)
            room = dict(other.store.room.counts), other.store.room.size
        lent.service.follow(StoredChange(kept, publish(2), publish(3)), _ANN)
        lent.store.take_back(is_as_lent=False)
        with capture_logs() as logs:
            await lent.service.come_back(_BOB)
        assert lent.messages() == 20
        assert lent.policies.get("publish", Setting.TENANT, "gone") is None
        assert {line["policy"] for line in logs if line.get("by") == "bob"} == {_KEY.shown, gone.shown}
        assert (dict(lent.store.room.counts), lent.store.room.size) == room
        assert await lent.service.change({_KEY: publish(20), gone: None}, _ANN) == 0
        await lent.service.come_back(_BOB)
        assert lent.messages() == 20


async def test_changes_that_wait_to_be_followed_are_bounded() -> None:
    with shelf() as run, capture_logs() as logs:
        for number in range(MOST_FOLLOWED + 2):
            key = rate_key("publish", Setting.TENANT, f"t{number}")
            run.service.follow(StoredChange(key, None, publish(1)), _ANN)
        await run.service.close()
        missed = [line["policy"] for line in logs if line["event"].endswith("of a takeover alone")]
        assert missed == [f"publish tenant t{MOST_FOLLOWED}", f"publish tenant t{MOST_FOLLOWED + 1}"]


def patterns(letter: str, forms: int) -> list[PolicyKey]:
    """Keys of patterns of so many forms, with one letter more before the `*` in each."""
    return [rate_key("publish", Setting.NAMESPACE, f"{letter * (length + 1)}*/*") for length in range(forms)]


def test_patterns_that_are_set_together_have_few_forms() -> None:
    service = a_service(_EMPTY, {})
    with closing(service.store):
        with pytest.raises(BodyError, match="have patterns of 16 forms"):
            asyncio.run(service.change(dict.fromkeys(patterns("a", MOST_FORMS + 1), publish(5)), ANN))
        assert service.layers.policies.by_name("publish", Setting.NAMESPACE) == {}
        asyncio.run(service.change(dict.fromkeys(patterns("a", MOST_FORMS), publish(5)), ANN))


def test_patterns_that_are_taken_back_make_room_for_others() -> None:
    file = FilePolicies({("publish", Setting.NAMESPACE, "a*/*"): Value(Limit(rate(5, 1)), "file")}, {}, {})
    service = a_service(file, {})
    with closing(service.store):
        asyncio.run(service.change(dict.fromkeys(patterns("a", MOST_FORMS), publish(5)), ANN))
        taken_back = dict.fromkeys(patterns("a", MOST_FORMS))
        others = dict.fromkeys(patterns("b" * 32, MOST_FORMS), publish(5))
        with pytest.raises(BodyError, match="have patterns of 16 forms"):  # the file's is there still
            asyncio.run(service.change(taken_back | others, ANN))
        others.popitem()
        asyncio.run(service.change(taken_back | others, ANN))
        assert len(service.layers.policies.by_name("publish", Setting.NAMESPACE)) == MOST_FORMS


def test_changes_of_other_members_leave_patterns_of_few_forms() -> None:
    service = a_service(_EMPTY, {})
    with closing(service.store):
        keys = patterns("a", MOST_FORMS + 2)
        same = rate_key("publish", Setting.NAMESPACE, "b*/*")
        refused = asyncio.run(service.take(dict.fromkeys([*keys, same], publish(5)), ANN))
        assert refused == keys[MOST_FORMS:]
        others = patterns("b" * 32, MOST_FORMS)
        changes = dict.fromkeys([*keys, same]) | dict.fromkeys(others, publish(5)) | {_KEY: "no body"}
        assert asyncio.run(service.take(changes, ANN)) == [_KEY]
        assert len(service.layers.policies.by_name("publish", Setting.NAMESPACE)) == MOST_FORMS
