"""Counts delivered batches that say they hold more messages than is believed, and tells the operator."""

from collections.abc import Callable

import structlog

from proxy.observe.counters import Counters

INTERVAL_NS = 10_000_000_000
"""Between two lines: what a publisher stores once is delivered again and again."""


class Disbelief:
    """A line for such a batch, with how many there were since the line before.

    Args:
        counters: Counts them all.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, counters: Counters, clock: Callable[[], int]) -> None:
        self._counters = counters
        self._clock = clock
        self._told_at: int | None = None
        self._since = 0

    def met(self, messages: int, client: str) -> None:
        """A batch was delivered to `client` that says it holds so many messages; it counts as one."""
        self._counters.batches_not_believed += 1
        self._since += 1
        now = self._clock()
        if self._told_at is not None and now - self._told_at < INTERVAL_NS:
            return
        self._told_at = now
        structlog.get_logger().warning(
            "a delivered batch says it holds more messages than publish.max_batch_messages: it counts as one",
            messages=messages,
            client=client,
            batches=self._since,
        )
        self._since = 0
