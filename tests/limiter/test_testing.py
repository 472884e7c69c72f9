from tests.manual_clock import ManualClock


def test_time_passes_only_when_told_to() -> None:
    clock = ManualClock(5)
    assert (clock(), clock()) == (5, 5)
    clock.advance(1.5)
    assert clock() == 1_500_000_005
