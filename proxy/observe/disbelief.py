"""Counts delivered batches that say they hold more messages than is believed, and tells the operator."""

from collections.abc import Callable

import structlog

from proxy.observe.counters import Counters
from proxy.observe.rare_lines import RareLines


class Disbelief:
    """A line for such a batch, with how many there were since the line before.

    Args:
        counters: Counts them all.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, counters: Counters, clock: Callable[[], int]) -> None:
        self._counters = counters
        self._lines = RareLines(clock)

    def met(self, messages: int, client: str) -> None:
        """A batch was delivered to `client` that says it holds so many messages; it counts as fewer."""
        self._counters.batches_not_believed += 1
        batches = self._lines.due("batch")
        if batches:
            structlog.get_logger().warning(
                "a delivered batch says it holds more messages than publish.max_batch_messages: it counts as so many",
                messages=messages,
                client=client,
                batches=batches,
            )
