"""What a service says, in memory."""

import contextlib
from collections.abc import Iterator

import pytest

from limiter.levels import Setting
from limiter.policies import Policies, PolicyTarget, Value
from limiter.token_bucket import Limit, Mode, rate
from proxy.policies.bodies import BodyError, PublishRate, kept_as_pulsar_s
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, rate_key
from proxy.policies.layers import FilePolicies, Layers
from proxy.policies.state import PolicyState
from proxy.policies.store import Store, StoredChange

_PLACE: PolicyTarget = ("publish", Setting.TOPIC, "persistent://acme/shop/orders")
_KEY = rate_key(*_PLACE)
_BROKER: PolicyTarget = ("publish", Setting.TOPIC_OF_BROKER, "")
_DYNAMIC = PolicyKey(PolicyKind.DYNAMIC, "", "maxPublishRatePerTopicInMessages")
_ATTACHED = PolicyKey(PolicyKind.ATTACHMENT, "namespace", "acme/shop")
_WANTED = {
    _KEY: kept_as_pulsar_s(PublishRate(20)),
    PolicyKey(PolicyKind.GROUP, "", "gold"): "{}",
    _ATTACHED: "gold",
    _DYNAMIC: "7",
}


@pytest.fixture
def contents() -> Iterator[PolicyState]:
    with contextlib.closing(Store(None)) as store:
        yield PolicyState(Layers(Policies()), store)


def lay(contents: PolicyState, wanted: dict[PolicyKey, str]) -> None:
    contents.lay([contents.meaning(key, kept) for key, kept in wanted.items()])


def said(contents: PolicyState) -> tuple[object, ...]:
    """All that there is of what is wanted above."""
    policies = contents.layers.policies
    messages = [value and value.limit.messages for value in (policies.get(*_PLACE), policies.get(*_BROKER))]
    attached = dict(contents.attached("namespace")), dict(policies.groups_of_namespaces)
    return messages, dict(contents.dynamic), contents.groups(), attached, contents.file


_NOTHING = FilePolicies({}, {}, {})
_EMPTY: tuple[object, ...] = ([None, None], {}, set(), ({}, {}), _NOTHING)
_FULL = (
    [rate(20), rate(7)],
    {_DYNAMIC.name: "7"},
    {"gold"},
    ({"acme/shop": "gold"}, {"acme/shop": "gold"}),
    _NOTHING,
)


def test_a_body_that_cannot_be_read_has_no_meaning(contents: PolicyState) -> None:
    with pytest.raises(BodyError, match="'many' is not a whole number"):
        contents.meaning(_DYNAMIC, "many")


def test_what_is_laid_is_said(contents: PolicyState) -> None:
    lay(contents, _WANTED)
    assert said(contents) == _FULL


def test_what_is_laid_in_a_copy_is_said_when_the_two_are_exchanged(contents: PolicyState) -> None:
    policies, aside = contents.layers.policies, contents.copy()
    lay(aside, _WANTED)
    assert (said(contents), said(aside)) == (_EMPTY, _FULL)

    contents.exchange(aside)

    assert (said(contents), said(aside)) == (_FULL, _EMPTY)
    assert contents.layers.policies is policies


def test_another_file_changes_what_it_says_and_whom_it_attaches(contents: PolicyState) -> None:
    file = FilePolicies({_PLACE: Value(Limit(rate(3)), "file")}, {"acme": "silver"}, {}, frozenset({"silver", "idle"}))
    contents.lay_file(file, file.values)

    assert contents.file == file
    assert contents.attaches_as(FilePolicies({}, {"acme": "silver"}, {}, frozenset({"silver", "idle"})))
    assert not contents.attaches_as(FilePolicies({}, {"acme": "silver"}, {}, frozenset({"silver"})))
    assert not contents.attaches_as(_NOTHING)
    assert (contents.groups(), contents.layers.policies.groups_of_tenants) == (
        {"silver", "idle"},
        {"acme": "silver"},
    )


def test_the_part_that_no_dynamic_key_sets_follows_the_file(contents: PolicyState) -> None:
    for size in (1000, 2000):
        file = {_BROKER: Value(Limit(size=rate(size)), "file")}
        contents.lay_file(FilePolicies(file, {}, {}), file)
        lay(contents, {_DYNAMIC: "7"} if size == 1000 else {})
        value = contents.layers.policies.get(*_BROKER)
        assert value is not None
        assert value.limit == Limit(rate(7), rate(size))


def test_the_mode_of_the_file_holds_over_global_numbers_too(contents: PolicyState) -> None:
    key = rate_key(*_PLACE, Layer.GLOBAL)
    kept = kept_as_pulsar_s(PublishRate(20))
    contents.store.write([StoredChange(key, None, kept)], 1, "", "")
    lay(contents, {key: kept})
    modes: tuple[Mode, ...] = ("observe", "reject")
    for mode in modes:
        file = Value(Limit(rate(3), mode=mode), "file")
        over = list(contents.meanings_over(_PLACE, file))
        contents.lay_file(FilePolicies({}, {}, {}), {_PLACE: file}, over)
        assert contents.layers.policies.get(*_PLACE) == Value(Limit(rate(20), mode=mode), "global")
