import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.stream.runs import SEEN_SCHEMA, Gap, Seen

RUN = ("p", "b")
LARGEST = 2**63 - 1


def numbers(*many):
    return np.array(many, np.int64)


def seen(*many, run=RUN):
    made = Seen()
    made.added(run, numbers(*many))
    return made


def pairs(found):
    return list(zip(found.table()["from_seq"].to_pylist(), found.table()["to_seq"].to_pylist(), strict=True))


def test_numbers_become_ranges_in_any_order():
    found = seen(3, 1, 2, 2, 7, 2**40 - 1, 2**40, 2**40 + 1)
    assert pairs(found) == [(1, 3), (7, 7), (2**40 - 1, 2**40 + 1)]
    assert (found.there(), found.missing()) == (7, 2**40 + 2 - 7)


def test_runs_are_told_apart():
    found = seen(0, 1, 3).union(seen(2, run=("p", "c")))
    assert [(found.there(run), found.missing(run)) for run in (RUN, ("p", "c"))] == [(3, 1), (1, 2)]
    assert (found.there(), found.missing()) == (4, 3)


@pytest.mark.parametrize("edge", [LARGEST, LARGEST - 1])
def test_the_largest_number_that_a_line_may_have_is_one_like_others(edge):
    found = seen(0, edge).union(seen(LARGEST))
    assert (found.there(), found.missing()) == (len({0, edge, LARGEST}), LARGEST + 1 - len({0, edge, LARGEST}))
    assert not found.added(RUN, numbers(LARGEST)).any()


def test_gaps_are_what_is_missing_below_the_largest():
    assert list(seen(2, 3, 4, 6, 10).gaps()) == [Gap(RUN, -1, 2), Gap(RUN, 4, 1), Gap(RUN, 6, 3)]


def test_nothing_has_no_length():
    for nothing in (Seen(), seen(), Seen().union(seen())):
        assert (nothing.there(), nothing.missing(), list(nothing.gaps())) == (0, 0, [])
        assert nothing.table().schema == SEEN_SCHEMA
        assert len(nothing.table()) == 0


BATCHES = st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=6)


@given(batches=BATCHES)
def test_each_number_is_new_once_whatever_comes_in_which_batch(batches):
    found, known = Seen(), set[int]()
    for batch in batches:
        is_new = found.added(RUN, numbers(*batch))
        new = [number for number, one in zip(batch, is_new, strict=True) if one]
        assert sorted(new) == sorted(set(batch) - known)
        known |= set(batch)
    assert found.there() == len(known)
    assert found.missing() == max(known, default=-1) + 1 - len(known)
    assert {number for first, last in pairs(found) for number in range(first, last + 1)} == known
    assert all(later[0] - earlier[1] > 1 for earlier, later in zip(pairs(found), pairs(found)[1:], strict=False))


@given(batches=BATCHES)
def test_what_several_have_seen_is_what_one_would_have(batches):
    together = Seen().union(*(seen(*batch) for batch in batches))
    assert pairs(together) == pairs(seen(*(number for batch in batches for number in batch)))


@given(batches=BATCHES)
def test_what_is_kept_is_what_was_seen(batches):
    found = Seen().union(*(seen(*batch, run=("p", str(at))) for at, batch in enumerate(batches)))
    assert Seen.of(found.table()).table() == found.table()
