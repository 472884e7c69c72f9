from hypothesis import given
from hypothesis import strategies as st

from limiter.usage import LimiterUsage, Spared, Stopwatch, StreamUsage
from tests.limiter.attributes import attributes

SPANS = st.lists(st.tuples(st.booleans(), st.integers(0, 1000)), max_size=30)


@given(spans=SPANS)
def test_a_stopwatch_counts_repeated_starts_once(spans: list[tuple[bool, int]]) -> None:
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
        counts = attributes(usage)
        assert counts.pop("passed", (0, 0, 0)) == (0, 0, 0)
        assert counts.pop("throttled").read(5) == 0
        assert counts.pop("reported") == ()
        assert counts.pop("after", (0, 0)) == (0, 0)
        assert (watch := counts.pop("withheld", None)) is None or watch.read(5) == 0
        assert not any(counts.values())


@given(steps=st.lists(st.tuples(st.sampled_from(["start", "stop", "take"]), st.integers(0, 1000)), max_size=30))
def test_what_passed_while_a_stream_was_spared_is_told_once(steps: list[tuple[str, int]]) -> None:
    spared, passed, total, taken, is_spared = Spared(), 0, 0, 0, False
    for step, more in steps:
        so_far = passed, 3 * passed, 100 * passed
        if step == "take":
            entries, *others = spared.take(so_far)
            assert others == [3 * entries, 100 * entries]
            taken += entries
            assert taken == total
        else:
            is_spared = step == "start"
            (spared.start if is_spared else spared.stop)(so_far)
        passed += more
        total += more if is_spared else 0


def test_a_stream_is_spared_from_what_it_had_passed_on() -> None:
    usage = StreamUsage()
    usage.spare_no_longer()
    assert usage.spared is None, "most streams never are"
    for step in (usage.spare, usage.spare_no_longer, usage.spare):
        usage.passed_entries, usage.passed_messages, usage.passed_size = (count + 1 for count in usage.passed)
        step()
    assert usage.spared is not None
    assert usage.spared.take(usage.passed) == (1, 1, 1)
