"""A limit that changes with the publish rate is judged right: what the proxy keeps is kept, what is too much is seen.

The lines are those of a proxy in conversation, not planted ones.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from accesslog.record import LimitLine
from tests.compliance.judging.pure import deficit_s, excess, verdicts
from tests.compliance.planted import TOPIC as TOPIC_OF_LOG
from tests.compliance.planted import PlantedLog
from tests.proxy.backlog import Backlog, Published
from tests.proxy.conversation import World, consumer, publisher
from tests.proxy.wire import TOPIC

RATES = (100, 100, 400, 30, 0, 0, 250, 250, 5, 5, 60, 0, 0, 0, 0, 0)


def lines_of(batch: int) -> list[Any]:
    """A consumer that is always hungry, while the publish rate goes up and down every two and a half seconds."""
    limits = {"topics": {TOPIC: {"dispatch": {"messages": 10, "bytes": 2000, "relativeToPublishRate": True}}}}
    world = World(limits=limits)
    try:
        published, backlog = Published(world, *publisher(world)), Backlog(world, *consumer(world), batch=batch)
        for number, per_second in enumerate(RATES):
            published.at(per_second, seconds=2.5, beside=backlog)
            if number == 9:
                backlog.pause()
                published.at(per_second, seconds=3, beside=backlog)
                backlog.resume()
    finally:
        world.close()
    return world.lines()


def worse(lines: list[Any], spoil: Callable[[LimitLine, int], LimitLine]) -> list[Any]:
    number = iter(range(len(lines)))
    return [spoil(line, next(number)) if isinstance(line, LimitLine) else line for line in lines]


def a_tenth_more(line: LimitLine, _number: int) -> LimitLine:
    """A burst anew in every line: each line alone is within its value, the sum is not."""
    more = int(line.burst_messages or 0)
    return msgspec.structs.replace(line, passed_messages=line.passed_messages + more)


def some_less(line: LimitLine, _number: int) -> LimitLine:
    return msgspec.structs.replace(
        line, passed_messages=round(line.passed_messages * 0.9), passed_bytes=round(line.passed_bytes * 0.9)
    )


def falls_to_ten(log: PlantedLog, *, configured: tuple[float, float]) -> PlantedLog:
    """Two batches of 1,000, one before the limit fell from 110/s and one after it."""
    for rate, part in zip((110.0, 10.0), configured, strict=True):
        log.limit(1000, rate=rate, published_messages=rate - part, largest_entry_messages=1000)
        log.second += 1
    return log


@pytest.fixture(scope="module")
def excess_and_deficit() -> dict[str, tuple[float, float]]:
    """Of each log the worst excess over what counts as rounding, and the worst deficit."""
    singles, batches = lines_of(1), lines_of(50)
    logs = {
        "singles": singles,
        "batches": batches,
        "more": worse(singles, a_tenth_more),
        "less": worse(singles, some_less),
    }
    extremes = {}
    for name, lines in logs.items():
        of_dispatch = [result for (direction, _, _), result in verdicts(lines).items() if direction == "dispatch"]
        extremes[name] = max(map(excess, of_dispatch)), max(map(deficit_s, of_dispatch))
    return extremes


@pytest.mark.parametrize("name", ["singles", "batches"])
def test_what_the_proxy_passes_is_within_the_limit_however_it_varies(
    excess_and_deficit: dict[str, tuple[float, float]], name: str
) -> None:
    excess, deficit = excess_and_deficit[name]
    assert excess <= 0
    assert deficit <= 0


def test_windows_span_the_changes_so_that_a_burst_anew_in_each_line_is_seen(
    excess_and_deficit: dict[str, tuple[float, float]],
) -> None:
    assert excess_and_deficit["more"][0] > 10


def test_less_than_the_limit_of_each_moment_is_seen(excess_and_deficit: dict[str, tuple[float, float]]) -> None:
    assert excess_and_deficit["less"][1] > 0


def test_a_batch_that_passes_before_another_is_paid_is_seen_though_the_limit_fell() -> None:
    """Where it fell because less was published a debt stays in messages; an operator's own change may shorten it."""
    measured = falls_to_ten(PlantedLog(), configured=(10, 10))
    changed = falls_to_ten(PlantedLog(), configured=(110, 10))
    worst = [excess(verdicts(log.lines)["publish", "topic", TOPIC_OF_LOG]) for log in (measured, changed)]
    assert worst[0] == pytest.approx(2000 - (11 + 110 + 10 + 1000) - 0.5, abs=1e-3)
    # 879 at 110/s are 79.9 at 10/s, of which the second line pays ten.
    assert worst[1] == pytest.approx(879 / 11 - 10 - 0.5, abs=1e-3)
