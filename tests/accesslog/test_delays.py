from itertools import pairwise

from accesslog.record import BUCKETS, upper_bound_ms


def test_bounds_rise_by_a_quarter_at_most_from_1_ms_to_65_s():
    bounds = [bound for bucket in range(BUCKETS) if (bound := upper_bound_ms(bucket)) is not None]
    assert len(bounds) == BUCKETS - 1
    assert (bounds[0], bounds[-1]) == (1.0, 65536.0)
    assert all(1 < after / before <= 1.25 for before, after in pairwise(bounds))


def test_the_last_bucket_has_no_end():
    assert upper_bound_ms(BUCKETS - 1) is None
