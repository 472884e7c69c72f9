"""The memory that is read into: one place, seen as `bytes` and as views to write to."""

from proxy.session.transport import MOST_READ, ReadBuffer


def test_what_is_written_through_a_view_stands_in_the_bytes() -> None:
    buffer = ReadBuffer()
    for number, view in enumerate(buffer.views, ord("a")):
        view[:2] = bytes([number, number])
        view[-1:] = b"!"
        assert buffer.data[:2] == bytes([number, number])
        assert buffer.data[len(view) - 1 : len(view)] == b"!"


def test_a_slice_of_the_longest_read_is_a_copy_too() -> None:
    buffer = ReadBuffer()
    buffer.views[-1][:4] = b"kept"
    kept = buffer.data[:MOST_READ]
    buffer.views[-1][:4] = b"lost"
    assert kept[:4] == b"kept"


def test_each_has_memory_of_its_own() -> None:
    buffer, other = ReadBuffer(), ReadBuffer()
    buffer.views[0][:3] = b"one"
    other.views[0][:3] = b"two"
    assert buffer.data[:3] == b"one"
