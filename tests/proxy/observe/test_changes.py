"""What was counted since somebody last looked."""

from limiter.usage import LimiterUsage, StreamUsage
from proxy.observe.counter_snapshot import LIMITER, OBSERVED, STREAM, CountNames


def test_changes_are_what_was_counted_between_two_moments() -> None:
    usage = StreamUsage()
    usage.offered_messages, usage.rejected_size = 5, 700
    before = STREAM.read(usage, 0)
    usage.offered_messages, usage.rejected_size = 12, 900
    usage.throttled.start(100)
    changes = STREAM.changes(STREAM.read(usage, 350), before)
    assert (changes["offered_messages"], changes["rejected_bytes"], changes["throttled_ns"]) == (7, 200, 250)
    assert sum(changes.values()) == 7 + 200 + 250, "nothing else changed"


def test_before_the_beginning_all_was_zero() -> None:
    usage = LimiterUsage()
    usage.messages = 3
    assert LIMITER.changes(LIMITER.read(usage, 0), ())["passed_messages"] == 3


def test_each_count_has_one_name() -> None:
    """A name that stands twice would hide a count."""
    kinds: tuple[tuple[CountNames, StreamUsage | LimiterUsage], ...] = (
        (STREAM, StreamUsage()),
        (OBSERVED, StreamUsage()),
        (LIMITER, LimiterUsage()),
    )
    for counts, usage in kinds:
        values = counts.read(usage, 0)
        assert len(counts.changes(values, ())) == len(values)
