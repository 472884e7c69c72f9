"""Rates from two looks, and the order of rows."""

from proxy.cli.top_view import ProxyLook, Sort, ordered, rows_of, total
from tests.proxy.console_states import poll, state


def test_rates_are_differences_of_counts_over_the_proxys_own_time() -> None:
    before = poll(1000, state(offered_messages=10, passed_messages=5, rejected_messages=1))
    now = poll(1500, state(offered_messages=30, passed_messages=9, rejected_messages=2))
    (row,) = rows_of(ProxyLook("a", now, before))
    assert (row.offered_per_s, row.passed_per_s, row.rejected_per_s) == (40, 8, 2)


def test_what_is_new_has_no_rates_yet() -> None:
    now = poll(1500, state(stream_id=2, offered_messages=30))
    assert [row.offered_per_s for row in rows_of(ProxyLook("a", now, None))] == [None]
    assert [row.offered_per_s for row in rows_of(ProxyLook("a", now, poll(1000, state(stream_id=1))))] == [None]
    assert [
        row.offered_per_s for row in rows_of(ProxyLook("a", now, poll(1000, state(stream_id=2, direction="dispatch"))))
    ] == [None]


def test_counts_that_went_back_are_those_of_another_stream() -> None:
    before = poll(1000, state(offered_messages=100, passed_messages=50))
    assert [row.passed_per_s for row in rows_of(ProxyLook("a", poll(1500, state(offered_messages=101)), before))] == [
        None
    ]


def test_two_looks_at_the_same_moment_give_no_rate() -> None:
    assert [row.passed_per_s for row in rows_of(ProxyLook("a", poll(1000, state()), poll(1000, state())))] == [None]
    assert [row.passed_per_s for row in rows_of(ProxyLook("a", poll(900, state()), poll(1000, state())))] == [None]


def test_rows_come_in_the_order_asked_for() -> None:
    before = poll(0, *(state(stream_id=number) for number in (1, 2, 3)))
    now = poll(
        1000,
        state(stream_id=1, passed_messages=500),
        state(stream_id=2, held_messages=9, held_for_ms=10.0, passed_messages=5),
        state(stream_id=3, held_messages=2, held_for_ms=9000.0, passed_messages=1),
    )

    def ids(sort: Sort) -> list[int]:
        return [row.stream.stream_id for row in ordered(rows_of(ProxyLook("a", now, before)), sort)]

    assert ids("held") == [2, 3, 1]
    assert ids("rate") == [1, 2, 3]
    assert ids("wait") == [3, 2, 1]


def test_rejected_streams_come_before_others_that_hold_nothing() -> None:
    before = poll(0, *(state(stream_id=number) for number in (1, 2, 3)))
    now = poll(
        1000,
        state(stream_id=1, passed_messages=500),
        state(stream_id=2, rejected_messages=3),
        state(stream_id=3, held_messages=2),
    )
    rows = ordered(rows_of(ProxyLook("a", now, before)), "held")
    assert [row.stream.stream_id for row in rows] == [3, 2, 1]


def test_unknown_rates_do_not_spoil_the_sum() -> None:
    assert total([1.5, None, 2.0]) == 3.5
    assert total([]) == 0
