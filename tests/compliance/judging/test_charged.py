"""What passes by the rules of `dispatch` is no violation: what does not count against limits is not held against them.

The lines are those of a proxy in conversation; where one is spoiled, more passed than the limit lets pass.
"""

from typing import Any

import msgspec
import pytest

from accesslog.record import IntervalLine
from tests.compliance.judging.pure import excess, verdicts
from tests.proxy.backlog import Backlog
from tests.proxy.conversation import World, consumer
from tests.proxy.wire import TOPIC, flow, message, messages

ROOM = {"dispatch": {"messages": 10, "bytes": 50_000}}


def world_with(rule: dict[str, bool], interval: str) -> World:
    return World(limits={"topics": {TOPIC: ROOM}}, dispatch=rule, access_log={"interval": interval})


def counting_entries() -> list[Any]:
    """A backlog of batches of ten, within a limit of ten entries a second."""
    world = world_with({"dispatchThrottlingOnBatchMessageEnabled": True}, "1s")
    try:
        Backlog(world, *consumer(world), batch=10).go_on(6)
    finally:
        world.close()
    return world.lines()


def sparing(interval: str) -> list[Any]:
    """Five hundred messages to a subscription without a backlog; then more than it has permits for: it is limited."""
    world = world_with({"dispatchThrottlingOnNonBacklogConsumerEnabled": False}, interval)
    try:
        client, broker = consumer(world, permits=1000)
        broker >> message(0)
        world.advance(1.7)
        broker >> messages(500, start=1)
        world.advance(0.1)
        broker >> messages(499, start=501)
        client >> flow(1000)
        world.advance(0.1)
        broker >> messages(30, start=1000)
        world.advance(5)
    finally:
        world.close()
    return world.lines()


def spoiled(lines: list[Any], **counts: int | None) -> list[Any]:
    """Each line of a stream with other counts."""
    return [msgspec.structs.replace(line, **counts) if isinstance(line, IntervalLine) else line for line in lines]


def uncharged(lines: list[Any]) -> list[Any]:
    """Beside what counts, one more line of a stream from which nothing was charged."""
    line = next(line for line in lines if isinstance(line, IntervalLine) and line.passed_messages)
    stray = {"passed_messages": 300, "limit_level": "", "limit_messages": None, "limit_bytes": None}
    return [*lines, msgspec.structs.replace(line, **stray, charged_messages=None, charged_bytes=None)]


@pytest.fixture(scope="module")
def worst_excess() -> dict[str, float]:
    """Of each log, over what counts as rounding."""
    entries, spared, mixed = counting_entries(), sparing("1s"), sparing("10s")
    logs = {
        "entries": entries,
        "spared": spared,
        "spared within a line": mixed,
        "entries, all messages charged": spoiled(entries, charged_messages=None),
        "spared, all charged": spoiled(spared, charged_messages=None, charged_bytes=None),
        "entries, and a stream by the side": uncharged(entries),
        "spared, and a stream by the side": uncharged(spared),
    }
    return {name: max(map(excess, verdicts(lines).values())) for name, lines in logs.items()}


@pytest.mark.parametrize("name", ["entries", "spared", "spared within a line"])
def test_what_the_proxy_passes_by_its_rules_is_no_violation(worst_excess: dict[str, float], name: str) -> None:
    assert worst_excess[name] <= 0


@pytest.mark.parametrize(
    "name",
    [
        "entries, all messages charged",
        "spared, all charged",
        "entries, and a stream by the side",
        "spared, and a stream by the side",
    ],
)
def test_more_than_that_is_seen_under_the_same_rules(worst_excess: dict[str, float], name: str) -> None:
    assert worst_excess[name] > 100
