"""A whole set of policies is read, shown and put in force in pieces; the result is that of one go."""

import asyncio
import json
from contextlib import closing
from typing import Any

import pytest

from limiter.policies import Policies
from proxy import bulk
from proxy.admin.routes import policies as routes
from proxy.admin.routes.policies import read_set
from proxy.bulk import AbandonedError, in_thread
from proxy.policies.bodies import BodyError
from proxy.policies.held import ValueBefore
from proxy.policies.keys import PolicyKey, PolicyKind, Principal
from proxy.policies.layers import FilePolicies
from proxy.policies.policy_set import as_yaml, decoded, encoded
from proxy.policies.service import TAKEN_AT_ONCE, Around, PolicyService
from proxy.policies.store import Store

NAMES = [f"persistent://acme/shop/{number}" for number in range(20)]
LIMITS: dict[str, Any] = {
    "topics": {name: {"publish": {"messages": 5}} for name in NAMES},
    "tenants": {f"tenant-{number}": {"dispatch": {"bytes": "1MB"}} for number in range(9)},
    "resource_groups": {f"g{number}": {"tenants": [f"t{number}"], "publish": {"messages": 1}} for number in range(9)},
    "each_topic": {"publish": {"messages": 500}},
}


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PIECE", 3)
    monkeypatch.setattr(bulk, "PIECE", 3)


def body(**limits: Any) -> bytes:
    return json.dumps({"limits": limits, "blocks": [{"role": "billing"}]}).encode()


def test_a_set_in_pieces_is_that_of_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, texts = read_set(body(**LIMITS)), []
    yaml, exchanged = b"".join(as_yaml(whole)), b"".join(encoded(whole))
    monkeypatch.setattr(routes, "PIECE", 3)
    monkeypatch.setattr(bulk, "PIECE", 3)
    validate = routes.WantedPolicies.model_validate

    def counted(written: Any, **more: Any) -> routes.WantedPolicies:
        texts.append(max(map(len, written["limits"].values()), default=0))
        return validate(written, **more)

    monkeypatch.setattr(routes.WantedPolicies, "model_validate", counted)
    assert read_set(body(**LIMITS)) == whole
    assert (len(texts), max(texts)) == (1 + 7 + 3 + 3, 3)
    assert (len(whole.values), whole.blocks and len(whole.blocks)) == (20 + 9 + 9 + 1, 1)
    assert (b"".join(as_yaml(whole)), b"".join(encoded(whole))) == (yaml, exchanged)
    assert decoded(exchanged) == whole
    assert max(piece.count(b"direction") for piece in encoded(whole)) == 3


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (
            {"topics": LIMITS["topics"] | {"acme/shop/1": {"publish": {"messages": 7}}}},
            "occurs twice, in two spellings",
        ),
        (
            {"resource_groups": LIMITS["resource_groups"] | {"late": {"tenants": ["t0"]}}},
            "'t0' is attached to 'g0' and",
        ),
        ({"topics": LIMITS["topics"] | {"x": {"publish": {"messages": -1}}}}, "limits.topics.x.publish.messages: "),
        ({"topicss": LIMITS["topics"]}, "did you mean topics"),
    ],
)
def test_mistakes_of_a_set_in_pieces_are_named(limits: dict[str, Any], problem: str) -> None:
    with pytest.raises(BodyError, match=problem):
        read_set(body(**limits))


@pytest.mark.parametrize(
    "topic",
    [
        {"subscriptions": {str(number): {"dispatch": {"messages": 1}} for number in range(4)}},
        {"publish": dict.fromkeys(map(str, range(4)), 1)},
    ],
)
def test_tables_within_an_entry_are_bounded(topic: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_INNER", 3)
    with pytest.raises(BodyError, match="acme/shop/a: 4 entries are here, and at most 3 can be"):
        read_set(body(topics={"acme/shop/a": topic}))


@pytest.mark.usefixtures("pieces")
def test_large_changes_are_abandoned_when_the_service_closes() -> None:
    def wanted(count: int) -> dict[PolicyKey, str | None]:
        return {PolicyKey(PolicyKind.ATTACHMENT, "tenant", f"t{number}"): "gold" for number in range(count)}

    async def changed(store: Store) -> None:
        service = PolicyService(
            Policies(), FilePolicies({}, {}, {}), store, Around(lambda: (0, 0), lambda _changes, _now: None)
        )
        small, large = (asyncio.ensure_future(service.change(wanted(count), Principal("ann", ""))) for count in (2, 20))
        await asyncio.sleep(0)  # both begin, and the first one has its turn
        service.ending.set()
        assert await small == 2
        with pytest.raises(AbandonedError):
            await large
        with pytest.raises(AbandonedError):
            await in_thread(service.ending, read_set, body(**LIMITS))
        assert len(list(store.policies())) == 2

    with closing(Store(None)) as store:
        asyncio.run(changed(store))


class Taking:
    """A handler that notes how many bodies it took in each turn of the loop."""

    def __init__(self) -> None:
        self.turns = [0]

    def check(self, key: PolicyKey, kept: str | None) -> None:
        """Take any body."""

    def load(self, key: PolicyKey, kept: str) -> None:
        """Take any body."""

    def held(self, _key: PolicyKey, _kept: str) -> list[ValueBefore]:
        return []

    def take(self, _key: PolicyKey, _kept: str | None, _author: Principal) -> None:
        self.turns[-1] += 1


def test_bodies_that_handlers_keep_are_taken_a_few_in_each_turn() -> None:
    taking = Taking()
    around = Around(lambda: (0, 0), lambda _changes, _now: None, handlers={PolicyKind.BLOCK: taking})

    async def change(service: PolicyService) -> None:
        wanted = {PolicyKey(PolicyKind.BLOCK, "role", str(number)): "{}" for number in range(5 * TAKEN_AT_ONCE + 1)}
        changing = asyncio.ensure_future(service.change(wanted, Principal("ann", "")))
        while not changing.done():
            await asyncio.sleep(0)
            taking.turns.append(0)
        await changing

    with closing(Store(None)) as store:
        asyncio.run(change(PolicyService(Policies(), FilePolicies({}, {}, {}), store, around)))
    assert (sum(taking.turns), max(taking.turns)) == (5 * TAKEN_AT_ONCE + 1, TAKEN_AT_ONCE)
