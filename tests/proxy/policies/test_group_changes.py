import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.levels import Setting
from limiter.policies import PolicyTarget, Value
from limiter.token_bucket import Limit, Mode, rate
from proxy.policies.bodies import MOST_BYTES, MOST_MESSAGES, ResourceGroup
from proxy.policies.keys import PolicyKey, PolicyKind
from proxy.policies.layers import FilePolicies
from proxy.policies.service import PolicyService
from proxy.policies.state import to_set_direction, to_set_numbers, to_take_back_direction
from tests.proxy.policies.layered import ANN, a_service

_KEY = PolicyKey(PolicyKind.GROUP, "", "gold")
_PUBLISH: PolicyTarget = ("publish", Setting.RESOURCE_GROUP, "gold")
_DISPATCH: PolicyTarget = ("dispatch", Setting.RESOURCE_GROUP, "gold")
_PER_MINUTE = Limit(rate(30, 60 * 10**9, burst=9), rate(1000), rate(900, 60 * 10**9), mode="observe")


def file_says(publish: Limit | None = None, dispatch: Limit | None = None) -> FilePolicies:
    limits = {_PUBLISH: publish, _DISPATCH: dispatch}
    values = {place: Value(limit, "file") for place, limit in limits.items() if limit}
    return FilePolicies(values, {"acme": "gold"}, {}, frozenset({"gold"}))


def change(service: PolicyService, wanted: dict[PolicyKey, str | None]) -> int:
    return asyncio.run(service.change(wanted, ANN))


def set_numbers(service: PolicyService, **rates: int) -> None:
    change(service, to_set_numbers(service, "gold", ResourceGroup(**rates)))


def limit(service: PolicyService, place: PolicyTarget) -> Limit | None:
    value = service.layers.policies.get(*place)
    return value.limit if value else None


def retake(service: PolicyService, file: FilePolicies) -> None:
    asyncio.run(service.take_file(file, lambda _: None, lambda _seen, _at_ns: None))


def test_numbers_of_one_direction_leave_the_other_as_the_file_or_the_own_form_says() -> None:
    for service in (a_service(file_says(dispatch=_PER_MINUTE), {}), a_service(file_says(), {})):
        if limit(service, _DISPATCH) is None:
            section = {"messages": "30/min", "burst_messages": 9, "bytes": 1000}
            section |= {"peak_messages": "900/min", "mode": "observe"}
            change(service, to_set_direction(service, "gold", "dispatch", section))
        set_numbers(service, publishRateInMsgs=5)
        assert (limit(service, _PUBLISH), limit(service, _DISPATCH)) == (Limit(rate(5)), _PER_MINUTE)
        service.store.close()


def test_of_one_direction_only_the_number_that_is_said_becomes_another() -> None:
    service = a_service(file_says(_PER_MINUTE), {})
    set_numbers(service, publishRateInBytes=7)
    assert limit(service, _PUBLISH) == Limit(_PER_MINUTE.messages, rate(7), _PER_MINUTE.peak_messages, mode="observe")
    set_numbers(service, publishRateInMsgs=8)
    assert limit(service, _PUBLISH) == Limit(rate(8), rate(7), mode="observe")
    set_numbers(service, publishRateInMsgs=-1, publishRateInBytes=0)
    assert limit(service, _PUBLISH) == Limit()
    service.store.close()


def test_a_direction_of_which_no_number_was_set_follows_the_file() -> None:
    service = a_service(file_says(Limit(rate(1)), Limit(rate(2))), {})
    set_numbers(service, publishRateInMsgs=5)
    retake(service, file_says(Limit(rate(3)), Limit(rate(4))))
    assert (limit(service, _PUBLISH), limit(service, _DISPATCH)) == (Limit(rate(5)), Limit(rate(4)))
    service.store.close()


@pytest.mark.parametrize("kept", [None, '{"publishRateInMsgs":1}'])
def test_numbers_follow_the_mode_of_the_file(kept: str | None) -> None:
    modes: tuple[Mode, ...] = ("observe", "reject", "enforce", "observe")
    service = a_service(file_says(Limit(rate(1), mode="observe")), {_KEY: kept} if kept else {})
    set_numbers(service, publishRateInMsgs=5, dispatchRateInMsgs=6)
    for mode in modes:
        retake(service, file_says(Limit(rate(1), mode=mode), Limit(rate(1))))
        assert (limit(service, _PUBLISH), limit(service, _DISPATCH)) == (Limit(rate(5), mode=mode), Limit(rate(6)))
    service.store.close()


def test_mode_of_the_own_form_stays_when_numbers_are_set() -> None:
    service = a_service(file_says(Limit(rate(1), mode="observe")), {})
    change(service, to_set_direction(service, "gold", "publish", {"messages": 3}))
    set_numbers(service, publishRateInMsgs=5)
    assert limit(service, _PUBLISH) == Limit(rate(5))
    change(service, to_set_direction(service, "gold", "publish", {"messages": 3, "mode": "reject"}))
    set_numbers(service, publishRateInMsgs=5)
    assert limit(service, _PUBLISH) == Limit(rate(5), mode="reject")
    service.store.close()


def test_the_own_form_over_pulsar_s_numbers_ends_their_following_the_file() -> None:
    service = a_service(file_says(Limit(rate(1), mode="observe"), Limit(rate(1), mode="observe")), {})
    set_numbers(service, publishRateInMsgs=5, dispatchRateInMsgs=6)
    change(service, to_set_direction(service, "gold", "publish", {"messages": 7}))
    assert limit(service, _PUBLISH) == Limit(rate(7))
    assert limit(service, _DISPATCH) == Limit(rate(6), mode="observe")
    service.store.close()


def test_to_take_back_what_only_the_file_says_changes_nothing() -> None:
    service = a_service(file_says(Limit(rate(5))), {})
    assert change(service, to_take_back_direction(service, "gold", "publish")) == 0
    assert (dict(service.store.policies()), service.store.audited(5)) == ({}, [])
    service.store.close()


def test_with_what_was_said_last_of_a_group_of_the_file_nothing_is_kept_of_it() -> None:
    service = a_service(file_says(Limit(rate(5))), {})
    set_numbers(service, publishRateInMsgs=7)
    assert change(service, to_take_back_direction(service, "gold", "dispatch")) == 0
    assert change(service, to_take_back_direction(service, "gold", "publish")) == 1
    assert (limit(service, _PUBLISH), dict(service.store.policies())) == (Limit(rate(5)), {})
    service.store.close()


@given(st.integers(1, MOST_MESSAGES), st.integers(1, MOST_BYTES))
def test_any_number_holds_exactly_over_the_file(messages: int, size: int) -> None:
    service = a_service(file_says(Limit(rate(5))), {})
    set_numbers(service, publishRateInMsgs=messages, publishRateInBytes=size)
    assert limit(service, _PUBLISH) == Limit(rate(messages), rate(size))
    service.store.close()
