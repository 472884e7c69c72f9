import pytest

from proxy.config.values import read_count_rate, read_rate


def test_a_rate_of_messages_has_no_unit_of_bytes():
    assert read_count_rate("30/min") == (30, 60_000_000_000)
    with pytest.raises(ValueError, match="of what is counted"):
        read_count_rate("10KB")


def test_no_rate_is_larger_than_what_pulsar_can_say():
    assert read_rate(2**63 - 1)[0] == 2**63 - 1
    with pytest.raises(ValueError, match="at most"):
        read_rate(2**63)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("5/30s", (5, 30_000_000_000)),
        ("5/ 30 s", (5, 30_000_000_000)),
        ("1/500ms", (1, 500_000_000)),
        ("7/1.5h", (7, 5_400_000_000_000)),
        ("500/s", (500, 1_000_000_000)),
    ],
)
def test_a_period_may_be_any_span(written: str, read: tuple[int, int]) -> None:
    assert read_rate(written) == read


@pytest.mark.parametrize("written", ["5/", "5/0s", "5/30", "5/30x", "5/-1s", "5/s/s", "5/30S"])
def test_what_is_no_span_is_told_with_an_example(written: str) -> None:
    with pytest.raises(ValueError, match="5/30s"):
        read_rate(written)
