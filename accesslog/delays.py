"""The bounds of the delay histogram: four buckets to each doubling, from 1 ms to 65.536 s, one below and one above.

They never change: histograms of any two lines, of whatever age, can be added place by place. A percentile read from
the sum is right to a quarter of itself, and to 1 ms below 4 ms.
"""

BUCKETS = 66
_PER_DOUBLING = 4


def upper_bound_ms(bucket: int) -> float | None:
    """Delays in `bucket` are below this many milliseconds, and not below that of the bucket before; None for no bound.

    0 → 1 ms, 1 → 1.25 ms, 2 → 1.5 ms, 4 → 2 ms, 5 → 2.5 ms … 64 → 65,536 ms, 65 → none.
    """
    if bucket >= BUCKETS - 1:
        return None
    doubling, quarter = divmod(bucket, _PER_DOUBLING)
    return float((_PER_DOUBLING + quarter) << doubling) / _PER_DOUBLING
