from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.pace import wanted_by
from loadgen.load.scenario import Bursty, Greedy, Steady

BURSTY = Bursty(kind="bursty", rate=2000, burst=1, pause=3)
RATES = st.floats(0.01, 20_000)
PATTERNS = st.one_of(
    st.builds(Steady, kind=st.just("steady"), rate=RATES),
    st.builds(Greedy, kind=st.just("greedy"), rate=RATES),
    st.builds(Bursty, kind=st.just("bursty"), rate=RATES, burst=st.floats(0.01, 100), pause=st.floats(0.01, 100)),
)
TIMES = st.floats(0, 3600)


def test_a_steady_pace_is_rate_times_time() -> None:
    assert wanted_by(Steady(kind="steady", rate=200), 2.5) == 500


def test_a_burst_offers_its_rate_and_a_pause_nothing() -> None:
    assert [wanted_by(BURSTY, at) for at in (0, 0.5, 1, 2, 3.999, 4, 4.5, 5, 8)] == [
        *(0, 1000, 2000, 2000, 2000, 2000, 3000, 4000, 4000)
    ]


@given(pattern=PATTERNS, earlier=TIMES, later=TIMES)
def test_no_pattern_takes_anything_back(pattern: Steady | Greedy | Bursty, earlier: float, later: float) -> None:
    earlier, later = sorted((earlier, later))
    assert wanted_by(pattern, earlier) <= wanted_by(pattern, later)


@given(pattern=PATTERNS, elapsed=TIMES)
def test_no_pattern_is_faster_than_its_rate(pattern: Steady | Greedy | Bursty, elapsed: float) -> None:
    assert 0 <= wanted_by(pattern, elapsed) <= pattern.rate * elapsed + 1
