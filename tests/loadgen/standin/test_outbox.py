import pytest

from loadgen.standin.outbox import MOST_UNSENT_BYTES, WRITE_AT_BYTES, Outbox
from tests.loadgen.standin.doubles import RecordingLink


@pytest.fixture
def link():
    return RecordingLink()


def test_frames_of_one_turn_are_one_write_in_their_order(link):
    outbox = Outbox(link)
    for frame in (b"a", b"b", b"c"):
        outbox.put(frame)
    assert link.written == []
    link.turn()
    outbox.put(b"d")
    link.turn()
    assert link.written == [b"abc", b"d"]


def test_a_lot_is_not_gathered_but_written_at_once(link):
    outbox = Outbox(link)
    outbox.put(b"a" * WRITE_AT_BYTES)
    assert [len(data) for data in link.written] == [WRITE_AT_BYTES]
    link.turn()
    assert len(link.written) == 1


@pytest.mark.parametrize(("unsent", "is_cut_off"), [(MOST_UNSENT_BYTES, False), (MOST_UNSENT_BYTES + 1, True)])
def test_a_peer_that_does_not_read_is_cut_off_in_the_end(link, unsent, is_cut_off):
    link.unsent = unsent
    Outbox(link).put(b"a")
    link.turn()
    assert bool(link.aborted) is is_cut_off
