"""Counting reasons not to read."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.session.transport import Cause
from tests.proxy.relay_rig import Reading, Reasons


class Read(Reasons):
    """Something that is read while there is no reason against it."""

    def __init__(self) -> None:
        super().__init__(lambda _last: self.reading.resume_reading())
        self.reading = Reading()


def test_reading_stops_at_the_first_reason_and_resumes_without_the_last() -> None:
    read = Read()
    read.raise_cause(Cause.HOLD_CONNECTION, read.reading)
    read.raise_cause(Cause.WRITE_BUFFER, read.reading)
    assert read.causes == {Cause.HOLD_CONNECTION, Cause.WRITE_BUFFER}
    read.end_cause(Cause.HOLD_CONNECTION)
    assert read.reading.is_paused
    read.end_cause(Cause.WRITE_BUFFER)
    assert not read.reading.is_paused
    assert (read.reading.pauses, read.reading.resumes) == (1, 1)


def test_a_reason_told_twice_counts_once_and_its_end_ends_it() -> None:
    read = Read()
    for _ in range(2):
        read.raise_cause(Cause.WRITE_BUFFER, read.reading)
    for _ in range(2):
        read.end_cause(Cause.WRITE_BUFFER)
    assert read.changes == [(Cause.WRITE_BUFFER, True), (Cause.WRITE_BUFFER, False)]
    assert not read.reading.is_paused


def test_clearing_tells_the_end_of_each_reason_and_resumes_nothing() -> None:
    read = Read()
    read.raise_cause(Cause.HOLD_PROCESS, read.reading)
    read.raise_cause(Cause.WRITE_BUFFER, read.reading)
    read.end_all_causes()
    assert read.causes == set()
    assert sum(not is_raised for _, is_raised in read.changes) == 2
    assert read.reading.resumes == 0


@given(st.lists(st.tuples(st.sampled_from(Cause), st.booleans())))
def test_reading_is_paused_exactly_while_there_is_a_reason(steps: list[tuple[Cause, bool]]) -> None:
    read = Read()
    reasons: set[Cause] = set()
    for cause, is_raised in steps:
        if is_raised:
            reasons.add(cause)
            read.raise_cause(cause, read.reading)
        else:
            reasons.discard(cause)
            read.end_cause(cause)
        assert read.reading.is_paused == bool(reasons)
        assert read.causes == reasons
