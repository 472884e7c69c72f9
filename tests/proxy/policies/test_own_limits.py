import asyncio

from limiter.levels import Setting
from limiter.policies import PolicyTarget, Value
from limiter.token_bucket import Limit, rate
from proxy.policies.keys import PolicyKey, PolicyKind
from proxy.policies.layers import FilePolicies
from proxy.policies.service import PolicyService
from proxy.policies.state import to_set, to_take_back
from tests.proxy.policies.layered import ANN, a_service

_SHOP: PolicyTarget = ("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop")
_GOLD: PolicyTarget = ("publish", Setting.RESOURCE_GROUP, "gold")
_GOLD_DISPATCH: PolicyTarget = ("dispatch", Setting.RESOURCE_GROUP, "gold")
_FILE = FilePolicies({place: Value(Limit(rate(9)), "file") for place in (_SHOP, _GOLD)}, {}, {})
_EMPTY = FilePolicies({}, {}, {})


def messages(service: PolicyService, place: PolicyTarget) -> int | None:
    value = service.layers.policies.get(*place)
    return value.limit.messages.tokens if value and value.limit.messages else None


def change(service: PolicyService, wanted: dict[PolicyKey, str | None]) -> None:
    asyncio.run(service.change(wanted, ANN))


def test_a_limit_is_set_hidden_by_nothing_and_taken_back_at_any_place() -> None:
    for place in (_SHOP, _GOLD):
        service = a_service(_FILE, {})
        change(service, to_set(service, place, {"messages": 5}))
        assert messages(service, place) == 5
        change(service, to_set(service, place, None))
        assert messages(service, place) is None
        change(service, to_take_back(service, place))
        assert messages(service, place) == 9
        service.store.close()


def test_the_other_direction_of_a_group_stays_as_it_was_whoever_wrote_it() -> None:
    key = PolicyKey(PolicyKind.GROUP, "", "gold")
    service = a_service(_EMPTY, {key: '{"publishRateInMsgs":5}'})
    change(service, to_set(service, _GOLD_DISPATCH, {"messages": "30/min"}))
    assert (messages(service, _GOLD), messages(service, _GOLD_DISPATCH)) == (5, 30)
    change(service, to_take_back(service, _GOLD))
    assert (messages(service, _GOLD), messages(service, _GOLD_DISPATCH)) == (None, 30)


def test_a_group_ends_with_its_last_limit_unless_something_is_attached_to_it() -> None:
    service = a_service(_EMPTY, {})
    change(service, to_set(service, _GOLD, {"messages": 5}))
    assert service.groups() == {"gold"}
    change(service, to_take_back(service, _GOLD))
    assert service.groups() == set()

    change(
        service, {**to_set(service, _GOLD, {"messages": 5}), PolicyKey(PolicyKind.ATTACHMENT, "tenant", "acme"): "gold"}
    )
    change(service, to_take_back(service, _GOLD))
    assert service.groups() == {"gold"}
