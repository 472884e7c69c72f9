"""What Sluice says of itself: its `/metrics`, read as an operator's Prometheus reads them."""

import math
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

LATENESS = "sluice_timer_lateness_seconds_bucket"
_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Scrape:
    """One reading.

    Attributes:
        values: By the sample's name, summed over all labels.
        timers: How many fired no later than so many seconds.
    """

    values: Mapping[str, float]
    timers: Mapping[float, float]


def scrape(port: int) -> Scrape:
    """Ask the admin address of this port.

    Raises:
        OSError: If nobody answers.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_TIMEOUT_S) as answer:
        return parsed(answer.read().decode())


def parsed(text: str) -> Scrape:
    """What such a text says."""
    values: dict[str, float] = {}
    timers: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == LATENESS:
                timers[float(sample.labels["le"])] = sample.value
            else:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return Scrape(values, timers)


def lateness(before: Scrape, after: Scrape, share: float) -> float:
    """The least bound, in seconds, that this share of the timers between two readings kept; `inf` above the last one.

    A histogram tells no more: the true quantile is between this bound and the one below. Without any timer: 0.
    """
    fired = {bound: count - before.timers.get(bound, 0.0) for bound, count in after.timers.items()}
    wanted = share * fired.get(math.inf, 0.0)
    return min((bound for bound, count in fired.items() if count >= wanted), default=0.0) if wanted else 0.0
