import pytest

from proxy.config_values import read_count_rate, read_rate


def test_a_rate_of_messages_has_no_unit_of_bytes():
    assert read_count_rate("30/min") == (30, 60_000_000_000)
    with pytest.raises(ValueError, match="a rate of messages"):
        read_count_rate("10KB")


def test_no_rate_is_larger_than_what_pulsar_can_say():
    assert read_rate(2**63 - 1)[0] == 2**63 - 1
    with pytest.raises(ValueError, match="at most"):
        read_rate(2**63)
