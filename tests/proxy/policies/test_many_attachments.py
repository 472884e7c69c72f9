"""Many namespaces are attached to resource groups: to attach one more takes no longer than the first one.

What a change does is measured in bytes that it allocates at most: a table of all attachments takes a megabyte.
"""

import contextlib
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from limiter.levels import SHAREABLE, Setting
from limiter.policies import Change, LimitTally, Policies, PolicyTarget, Value
from limiter.token_bucket import Limit, rate
from proxy.policies.keys import PolicyKey, PolicyKind, Principal
from proxy.policies.layers import FilePolicies, Layers
from proxy.policies.service import Around, PolicyService
from proxy.policies.state import PolicyState
from proxy.policies.store import Store

MANY = 20_000
MOST = 50_000
"""Bytes that a change on the loop allocates."""
_GOLD: PolicyTarget = ("publish", Setting.RESOURCE_GROUP, "gold")


def attachment(name: str) -> PolicyKey:
    return PolicyKey(PolicyKind.ATTACHMENT, "namespace", name)


def file_of(count: int = MANY, messages: int = 5, tenant: str = "") -> FilePolicies:
    groups = {f"acme/n{number}": "gold" for number in range(count)}
    of_tenants = {tenant: "gold"} if tenant else {}
    return FilePolicies({_GOLD: Value(Limit(rate(messages)), "file")}, of_tenants, groups, frozenset({"gold"}))


@pytest.fixture
def state() -> Iterator[PolicyState]:
    with contextlib.closing(Store(None)) as store:
        yield PolicyState(Layers(Policies(tally=LimitTally(frozenset(SHAREABLE)))), store)


def allocated(act: Callable[[], object]) -> int:
    """Return the bytes that a call takes more than there were, at most."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lay(state: PolicyState, name: str, group: str | None) -> list[Change]:
    state.lay([state.meaning(attachment(name), group)])
    return state.layers.changes()


@pytest.mark.parametrize("is_of_file", [True, False], ids=["in the file", "at run time"])
def test_one_attachment_beside_many_costs_one(state: PolicyState, *, is_of_file: bool) -> None:
    if is_of_file:
        state.lay_file(file_of(), file_of().values)
    else:
        state.lay(state.meaning(attachment(f"acme/n{number}"), "gold") for number in range(MANY))
    state.layers.forget_changes()
    for name, group in (("acme/x", "gold"), ("acme/x", "silver"), ("acme/n1", ""), ("acme/n1", None), ("acme/x", None)):
        assert allocated(lambda name=name, group=group: lay(state, name, group)) < MOST  # type: ignore[misc]
        assert state.layers.policies.groups_of_namespaces.get("acme/n2") == "gold"


def test_file_that_attaches_as_before_costs_nothing(state: PolicyState) -> None:
    state.lay_file(file_of(), file_of().values)
    state.lay(state.meaning(attachment(f"late/n{number}"), "gold") for number in range(MANY))
    state.layers.forget_changes()
    other = file_of(messages=6, tenant="late")
    regrouped = state.regrouped(other)
    assert regrouped == [("tenant", "late")]
    assert allocated(lambda: state.lay_file(other, other.values, (), regrouped)) < MOST
    changed = {(change.about, change.setting, change.name) for change in state.layers.changes()}
    assert changed == {_GOLD, *((about, Setting.TENANT, "late") for about in ("publish", "dispatch"))}
    assert state.layers.policies.groups_of_tenants == {"late": "gold"}


@pytest.mark.parametrize("count", [0, 5])
def test_file_that_attaches_many_others_is_laid_aside(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Also where most attachments go: the loop must not go over them."""
    laid = list[PolicyState]()
    own = PolicyState.lay_file

    def noted(state: PolicyState, *arguments: object) -> None:
        laid.append(state)
        own(state, *arguments)  # type: ignore[arg-type]

    with contextlib.closing(Store(None)) as store:
        around = Around(lambda: (1, 2), lambda _changes, _now: None)
        service = PolicyService(Policies(), file_of(1_000), store, around)
        monkeypatch.setattr(PolicyState, "lay_file", noted)
        seen, laying, _ = service._file_drafted(file_of(count), lambda _before: None)
        assert seen is None
        assert laying is not None
        assert laying.aside is not None
        assert laid == [laying.aside.contents]
        assert len(laid[0].layers.policies.groups_of_namespaces) == count
        assert len(service.layers.policies.groups_of_namespaces) == 1_000


async def test_change_of_one_attachment_builds_no_table() -> None:
    with contextlib.closing(Store(None)) as store:
        around = Around(lambda: (1, 2), lambda _changes, _now: None)
        service = PolicyService(Policies(), file_of(), store, around)
        await service.change({attachment("acme/x"): "gold"}, Principal("ann", ""))
        tracemalloc.start()
        try:
            await service.change({attachment("acme/y"): "gold"}, Principal("ann", ""))
            assert tracemalloc.get_traced_memory()[1] < 10 * MOST
        finally:
            tracemalloc.stop()
        assert service.is_attached("gold")
        assert not service.is_attached("silver")


def test_group_has_members_until_the_last_one_goes(state: PolicyState) -> None:
    state.lay_file(FilePolicies({}, {"acme": "gold"}, {}), {})
    lay(state, "acme/shop", "gold")
    assert state.is_attached("gold")
    state.lay_file(FilePolicies({}, {}, {}), {})
    aside = state.copy()
    lay(aside, "acme/shop", "silver")
    assert (aside.is_attached("gold"), aside.is_attached("silver")) == (False, True)
    assert state.is_attached("gold")
    lay(state, "acme/shop", None)
    assert not state.is_attached("gold")
