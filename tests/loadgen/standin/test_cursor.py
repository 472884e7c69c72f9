from hypothesis import given
from hypothesis import strategies as st

from loadgen.standin.cursor import Cursor


def test_the_position_moves_once_the_gap_is_closed():
    cursor = Cursor(0)
    cursor.acknowledge(1)
    cursor.acknowledge(2)
    assert cursor.position == 0
    cursor.acknowledge(0)
    assert cursor.position == 3


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=40))
def test_a_cursor_knows_just_what_was_acknowledged(steps):
    cursor, done = Cursor(0), set()
    for is_cumulative, entry_id in steps:
        if is_cumulative:
            cursor.acknowledge_below(entry_id)
            done |= set(range(entry_id))
        else:
            cursor.acknowledge(entry_id)
            done.add(entry_id)
    assert {entry_id for entry_id in range(25) if cursor.is_acknowledged(entry_id)} == done
    assert cursor.position == min(set(range(25)) - done)


def test_a_batch_is_acknowledged_when_no_message_of_it_is_open():
    cursor = Cursor(0)
    assert not cursor.acknowledge_in_part(0, [0b0111])
    assert not cursor.acknowledge_in_part(0, [0b1101])
    assert cursor.open_in_batch(0) == (0b0101,)
    assert cursor.acknowledge_in_part(0, [0b1010])
    assert cursor.position == 1
    assert cursor.open_in_batch(0) == ()


def test_a_shorter_ack_set_has_nothing_open_behind_its_end():
    cursor = Cursor(0)
    cursor.acknowledge_in_part(0, [-1, 0b1])
    assert not cursor.acknowledge_in_part(0, [0b1])
    assert cursor.open_in_batch(0) == (0b1, 0)


def test_a_reset_forgets_all_acknowledgements():
    cursor = Cursor(0)
    cursor.acknowledge_below(5)
    cursor.acknowledge(7)
    cursor.acknowledge_in_part(8, [1])
    cursor.reset(2)
    assert cursor.position == 2
    assert not any(cursor.is_acknowledged(entry_id) for entry_id in range(2, 10))
    assert cursor.open_in_batch(8) == ()
