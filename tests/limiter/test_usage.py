from hypothesis import given
from hypothesis import strategies as st

from limiter.usage import LimiterUsage, Stopwatch, StreamUsage

SPANS = st.lists(st.tuples(st.booleans(), st.integers(0, 1000)), max_size=30)


@given(spans=SPANS)
def test_a_stopwatch_counts_the_time_in_which_it_ran_however_often_it_is_told(spans: list[tuple[bool, int]]) -> None:
    watch, now, ran, running = Stopwatch(), 0, 0, 0
    for is_on, span in spans:
        (watch.start if is_on else watch.stop)(now)
        running = running if is_on else 0
        now += span
        ran += span if is_on else 0
        running += span if is_on else 0
        assert watch.read(now) == ran
        assert watch.running_ns(now) == running
        assert watch.is_running == is_on


def test_everything_counts_from_zero() -> None:
    for usage in (LimiterUsage(), StreamUsage()):
        counts = {name: getattr(usage, name) for name in usage.__slots__}
        assert counts.pop("throttled").read(5) == 0
        assert counts.pop("reported") == ()
        assert (watch := counts.pop("withheld", None)) is None or watch.read(5) == 0
        assert not any(counts.values())
