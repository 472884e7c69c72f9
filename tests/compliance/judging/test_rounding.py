from compliance.judging.rounding import excess_tolerance


def test_a_whole_message_is_no_rounding():
    assert excess_tolerance(100.0) < 1


def test_a_microsecond_of_a_very_high_limit_is_rounding():
    assert 1000 <= excess_tolerance(1e9) < 1002
