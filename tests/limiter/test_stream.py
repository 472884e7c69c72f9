import pytest

from limiter.limiter import Entry
from tests.limiter.world import World, limiter


@pytest.mark.parametrize(("messages", "size"), [(1, 0), (0, 1), (3, 9)])
def test_only_a_command_passes_for_free(messages: int, size: int) -> None:
    """An entry that claims to hold no messages still pays for its bytes."""
    assert Entry(b"", 0, 0, 10, 0).is_free
    assert not Entry(b"", messages, size, 10, 0).is_free


def test_streams_and_entries_are_themselves_whatever_they_hold() -> None:
    world, limit = World(), limiter(1)
    assert world.stream(limit) != world.stream(limit)
    assert Entry(b"", 1, 1, 1, 0) != Entry(b"", 1, 1, 1, 0)
    assert len({world.stream(limit), world.stream(limit)}) == 2
