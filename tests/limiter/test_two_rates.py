"""One limit with messages and bytes: an entry passes when both have a token, so a debt of one delays the other."""

from itertools import repeat

import pytest

from limiter.limiter import Limiter
from limiter.token_bucket import Limit, rate
from tests.limiter.world import World, limiter

MESSAGES, BYTES = 1000, 1_000_000
SECONDS = 60
Kind = tuple[int, int]


def used(burst: tuple[int | None, int | None], *kinds: Kind) -> tuple[float, float]:
    """What of its messages and its bytes a limit passes in the long run, for greedy streams of these entries."""
    world, scope = World(), limiter(MESSAGES).scope
    limit = Limit(rate(MESSAGES, burst=burst[0]), rate(BYTES, burst=burst[1]))
    both = Limiter(scope, limit, "test", 0)
    for kind in kinds:
        world.greedy(both, entries=repeat(kind))
    world.run(SECONDS)
    return both.usage.messages / (MESSAGES * SECONDS), both.usage.size / (BYTES * SECONDS)


def test_large_entries_beside_large_batches_cost_each_of_the_two_nearly_half() -> None:
    """The example of docs/limits.md: 1 s of debt in bytes, then 0.9 s in messages, and a tenth kept of the other."""
    messages, size = used((None, None), (1, 1_000_000), (1000, 100_000))
    assert messages == pytest.approx(0.55, abs=0.005)
    assert size == pytest.approx(0.62, abs=0.005)


def test_where_entries_are_within_twice_the_bursts_the_bytes_are_used_up() -> None:
    _, size = used((None, None), (1, 200_000), (100, 10_000))
    assert size >= 0.99


@pytest.mark.parametrize("kinds", [((1, 1_000_000), (1000, 100_000)), ((1, 500_000), (100, 10_000))])
def test_bursts_as_large_as_the_largest_entry_cost_nothing(kinds: tuple[Kind, Kind]) -> None:
    _, size = used((1000, 1_000_000), *kinds)
    assert size >= 0.99
