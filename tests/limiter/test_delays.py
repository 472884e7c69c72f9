from hypothesis import given
from hypothesis import strategies as st

from accesslog.record import BUCKETS, upper_bound_ms
from limiter.usage import Delays, bucket_of

MS = 1_000_000


@given(st.integers(0, 2**40))
def test_each_delay_falls_between_the_bounds_that_the_log_names(delay_ns):
    bucket = bucket_of(delay_ns)
    above = upper_bound_ms(bucket)
    assert above is None or delay_ns < above * MS
    below = upper_bound_ms(bucket - 1) if bucket else 0.0
    assert below is not None
    assert delay_ns >= below * MS


def test_every_bucket_is_used():
    bounds = [upper_bound_ms(bucket) for bucket in range(BUCKETS - 1)]
    assert [bucket_of(0), *(bucket_of(int(bound * MS)) for bound in bounds if bound)] == list(range(BUCKETS))


DELAYS = st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 1000)))


@given(DELAYS)
def test_every_message_is_counted_once_and_ends_with_a_count(delays):
    counting = Delays()
    for delay_ns, messages in delays:
        counting.add(delay_ns, messages)
    counts, sum_ns = counting.take()
    assert sum(counts) == sum(messages for _, messages in delays)
    assert sum_ns == sum(delay_ns * messages for delay_ns, messages in delays)
    assert counts == () or counts[-1] > 0
    assert counting.take() == ((), 0)


def test_commands_that_wait_are_no_messages():
    counting = Delays()
    counting.add(5 * MS, 0)
    assert counting.take() == ((), 0)
