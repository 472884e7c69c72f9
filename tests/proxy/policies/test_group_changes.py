import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.levels import Setting
from limiter.policies import Value
from limiter.rates import Limit, Mode, rate
from proxy.policies.bodies import MOST_BYTES, MOST_MESSAGES, ResourceGroup
from proxy.policies.book import Book
from proxy.policies.group_changes import to_set_direction, to_set_numbers, to_take_back_direction
from proxy.policies.key import Key, Kind
from proxy.policies.layers import FilePolicies, Place
from tests.proxy.policies.layered import ANN, a_book

_KEY = Key(Kind.GROUP, "", "gold")
_PUBLISH: Place = ("publish", Setting.RESOURCE_GROUP, "gold")
_DISPATCH: Place = ("dispatch", Setting.RESOURCE_GROUP, "gold")
_PER_MINUTE = Limit(rate(30, 60 * 10**9, burst=9), rate(1000), rate(900, 60 * 10**9), mode="observe")


def file_says(publish: Limit | None = None, dispatch: Limit | None = None) -> FilePolicies:
    limits = {_PUBLISH: publish, _DISPATCH: dispatch}
    values = {place: Value(limit, "file") for place, limit in limits.items() if limit}
    return FilePolicies(values, {"acme": "gold"}, {}, frozenset({"gold"}))


def change(book: Book, wanted: dict[Key, str | None]) -> int:
    return asyncio.run(book.change(wanted, ANN))


def set_numbers(book: Book, **rates: int) -> None:
    change(book, to_set_numbers(book, "gold", ResourceGroup(**rates)))


def limit(book: Book, place: Place) -> Limit | None:
    value = book.layers.policies.get(*place)
    return value.limit if value else None


def retake(book: Book, file: FilePolicies) -> None:
    asyncio.run(book.take_file(file, lambda _: None, lambda _seen, _at_ns: None))


def test_numbers_of_one_direction_leave_the_other_as_the_file_or_the_own_form_says() -> None:
    for book in (a_book(file_says(dispatch=_PER_MINUTE), {}), a_book(file_says(), {})):
        if limit(book, _DISPATCH) is None:
            section = {"messages": "30/min", "burst_messages": 9, "bytes": 1000}
            section |= {"peak_messages": "900/min", "mode": "observe"}
            change(book, to_set_direction(book, "gold", "dispatch", section))
        set_numbers(book, publishRateInMsgs=5)
        assert (limit(book, _PUBLISH), limit(book, _DISPATCH)) == (Limit(rate(5)), _PER_MINUTE)
        book.store.close()


def test_of_one_direction_only_the_number_that_is_said_becomes_another() -> None:
    book = a_book(file_says(_PER_MINUTE), {})
    set_numbers(book, publishRateInBytes=7)
    assert limit(book, _PUBLISH) == Limit(_PER_MINUTE.messages, rate(7), _PER_MINUTE.peak_messages, mode="observe")
    set_numbers(book, publishRateInMsgs=8)
    assert limit(book, _PUBLISH) == Limit(rate(8), rate(7), mode="observe")
    set_numbers(book, publishRateInMsgs=-1, publishRateInBytes=0)
    assert limit(book, _PUBLISH) == Limit()
    book.store.close()


def test_a_direction_of_which_no_number_was_set_follows_the_file() -> None:
    book = a_book(file_says(Limit(rate(1)), Limit(rate(2))), {})
    set_numbers(book, publishRateInMsgs=5)
    retake(book, file_says(Limit(rate(3)), Limit(rate(4))))
    assert (limit(book, _PUBLISH), limit(book, _DISPATCH)) == (Limit(rate(5)), Limit(rate(4)))
    book.store.close()


@pytest.mark.parametrize("kept", [None, '{"publishRateInMsgs":1}'])
def test_numbers_follow_the_mode_of_the_file(kept: str | None) -> None:
    modes: tuple[Mode, ...] = ("observe", "reject", "enforce", "observe")
    book = a_book(file_says(Limit(rate(1), mode="observe")), {_KEY: kept} if kept else {})
    set_numbers(book, publishRateInMsgs=5, dispatchRateInMsgs=6)
    for mode in modes:
        retake(book, file_says(Limit(rate(1), mode=mode), Limit(rate(1))))
        assert (limit(book, _PUBLISH), limit(book, _DISPATCH)) == (Limit(rate(5), mode=mode), Limit(rate(6)))
    book.store.close()


def test_the_mode_of_the_own_form_stays_whatever_the_file_says_and_whoever_sets_numbers() -> None:
    book = a_book(file_says(Limit(rate(1), mode="observe")), {})
    change(book, to_set_direction(book, "gold", "publish", {"messages": 3}))
    set_numbers(book, publishRateInMsgs=5)
    assert limit(book, _PUBLISH) == Limit(rate(5))
    change(book, to_set_direction(book, "gold", "publish", {"messages": 3, "mode": "reject"}))
    set_numbers(book, publishRateInMsgs=5)
    assert limit(book, _PUBLISH) == Limit(rate(5), mode="reject")
    book.store.close()


def test_the_own_form_over_pulsar_s_numbers_ends_their_following_the_file() -> None:
    book = a_book(file_says(Limit(rate(1), mode="observe"), Limit(rate(1), mode="observe")), {})
    set_numbers(book, publishRateInMsgs=5, dispatchRateInMsgs=6)
    change(book, to_set_direction(book, "gold", "publish", {"messages": 7}))
    assert limit(book, _PUBLISH) == Limit(rate(7))
    assert limit(book, _DISPATCH) == Limit(rate(6), mode="observe")
    book.store.close()


def test_to_take_back_what_only_the_file_says_changes_nothing() -> None:
    book = a_book(file_says(Limit(rate(5))), {})
    assert change(book, to_take_back_direction(book, "gold", "publish")) == 0
    assert (dict(book.store.policies()), book.store.audited(5)) == ({}, [])
    book.store.close()


def test_with_what_was_said_last_of_a_group_of_the_file_nothing_is_kept_of_it() -> None:
    book = a_book(file_says(Limit(rate(5))), {})
    set_numbers(book, publishRateInMsgs=7)
    assert change(book, to_take_back_direction(book, "gold", "dispatch")) == 0
    assert change(book, to_take_back_direction(book, "gold", "publish")) == 1
    assert (limit(book, _PUBLISH), dict(book.store.policies())) == (Limit(rate(5)), {})
    book.store.close()


@given(st.integers(1, MOST_MESSAGES), st.integers(1, MOST_BYTES))
def test_any_number_holds_exactly_over_the_file(messages: int, size: int) -> None:
    book = a_book(file_says(Limit(rate(5))), {})
    set_numbers(book, publishRateInMsgs=messages, publishRateInBytes=size)
    assert limit(book, _PUBLISH) == Limit(rate(messages), rate(size))
    book.store.close()
