"""Counting reasons not to read."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.session.transport import PauseReason
from tests.proxy.relay_rig import Reading, Reasons


class Read(Reasons):
    """Something that is read while there is no reason against it."""

    def __init__(self) -> None:
        super().__init__(lambda _last: self.reading.resume_reading())
        self.reading = Reading()


def test_reading_stops_at_the_first_reason_and_resumes_without_the_last() -> None:
    read = Read()
    read.add_pause_reason(PauseReason.HOLD_CONNECTION, read.reading)
    read.add_pause_reason(PauseReason.WRITE_BUFFER, read.reading)
    assert read.pause_reasons == {PauseReason.HOLD_CONNECTION, PauseReason.WRITE_BUFFER}
    read.remove_pause_reason(PauseReason.HOLD_CONNECTION)
    assert read.reading.is_paused
    read.remove_pause_reason(PauseReason.WRITE_BUFFER)
    assert not read.reading.is_paused
    assert (read.reading.pauses, read.reading.resumes) == (1, 1)


def test_a_reason_told_twice_counts_once_and_its_end_ends_it() -> None:
    read = Read()
    for _ in range(2):
        read.add_pause_reason(PauseReason.WRITE_BUFFER, read.reading)
    for _ in range(2):
        read.remove_pause_reason(PauseReason.WRITE_BUFFER)
    assert read.changes == [(PauseReason.WRITE_BUFFER, True), (PauseReason.WRITE_BUFFER, False)]
    assert not read.reading.is_paused


def test_clearing_tells_the_end_of_each_reason_and_resumes_nothing() -> None:
    read = Read()
    read.add_pause_reason(PauseReason.HOLD_PROCESS, read.reading)
    read.add_pause_reason(PauseReason.WRITE_BUFFER, read.reading)
    read.remove_all_pause_reasons()
    assert read.pause_reasons == set()
    assert sum(not is_added for _, is_added in read.changes) == 2
    assert read.reading.resumes == 0


@given(st.lists(st.tuples(st.sampled_from(PauseReason), st.booleans())))
def test_reading_is_paused_exactly_while_there_is_a_reason(steps: list[tuple[PauseReason, bool]]) -> None:
    read = Read()
    reasons: set[PauseReason] = set()
    for reason, is_added in steps:
        if is_added:
            reasons.add(reason)
            read.add_pause_reason(reason, read.reading)
        else:
            reasons.discard(reason)
            read.remove_pause_reason(reason)
        assert read.reading.is_paused == bool(reasons)
        assert read.pause_reasons == reasons
