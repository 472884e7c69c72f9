"""Limits so low that a client's patience is what is tested. See `slow_scenarios` for when this begins."""

import time

import pytest

from tests.real.slow_scenarios import MINUTE, PAUSED, Scenario, SlowScenarios
from tests.real.traffic import digests, receive, sent_by

pytestmark = [pytest.mark.real, pytest.mark.slow]

PATIENCE_S = 100


def wait_until_patient(scenario: Scenario) -> float:
    """How long the scenario has been going on, at least PATIENCE_S."""
    time.sleep(max(0.0, scenario.begun + PATIENCE_S - time.monotonic()))
    return time.monotonic() - scenario.begun


@pytest.mark.usefixtures("needs_limits")
@pytest.mark.parametrize("topic", [MINUTE, PAUSED])
def test_a_producer_held_to_a_message_a_minute_stays_connected(slow_scenarios: SlowScenarios, topic: str) -> None:
    scenario = {MINUTE: slow_scenarios.minute, PAUSED: slow_scenarios.paused}[topic]
    elapsed_s = wait_until_patient(scenario)
    receipts = len(scenario.sender.sent)
    assert scenario.sender.producer.is_connected()
    assert slow_scenarios.session(topic) == scenario.at_begin
    assert len(scenario.at_begin.to_sluice) == 1
    # The burst is one message; the line allows one entry above it.
    assert 2 <= receipts <= 1 + elapsed_s / 60 + 1
    assert not scenario.sender.failed


def test_a_pattern_subscription_finds_a_topic_made_later(slow_scenarios: SlowScenarios) -> None:
    messages = receive(slow_scenarios.found_by_pattern, 50, timeout_ms=70_000)
    assert digests(messages) == sent_by(slow_scenarios.new_sender)
