"""What all sessions of a process share: limits, budgets, allow-list, counters, log."""

import time
from collections.abc import Callable
from typing import Protocol

import structlog

from limiter.gate import Gate
from limiter.journal import Journal
from limiter.policies import Policies
from limiter.registry import Registry
from proxy.alarms import Alarms
from proxy.brokers.lookup import LookupSlots
from proxy.brokers.targets import Targets, split_address
from proxy.budget import Budget
from proxy.config import Config
from proxy.observe.counters import Counters


class Throttleable(Protocol):
    """A session, as far as the process's budget goes."""

    def hold_process_turned(self, is_full: bool) -> None:  # noqa: FBT001 - the new state
        """All connections together hold too much, or no longer do."""


class Engine:
    """The parts that outlive a session.

    Args:
        config: The configuration.
        policies: Limits by level.
        counters: What the data path counts into.
        activity: Called when some stream has something to report to the access log.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self,
        config: Config,
        policies: Policies,
        counters: Counters,
        activity: Callable[[], None],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.config = config
        self.clock = clock
        self.counters = counters
        self.journal = Journal(activity)
        alarms = Alarms(clock, self.counters)
        self.gate = Gate(alarms.wake_at, self.journal)
        alarms.connect(self.gate)
        self.registry = Registry(policies, self.gate)
        self.held = Budget(config.publish.hold_total, self._hold_turned)
        self.lookups = LookupSlots(config.max_lookups_in_flight)
        self.broker = split_address(config.broker)
        self.targets = Targets([self.broker], config.allowed_brokers, config.allowed_broker_networks)
        self.sessions: set[Throttleable] = set()

    def policies_changed(self) -> None:
        """Put changed policies in force on live streams."""
        self.registry.apply(self.clock())

    def _hold_turned(self, _is_full: bool) -> None:  # noqa: FBT001 - the new state
        log = structlog.get_logger()
        if self.held.is_full:
            log.warning("hold budget full: no client is read until half of it is free", bytes=self.held.used)
        else:
            log.info("hold budget has room again", bytes=self.held.used)
        for session in list(self.sessions):
            # Asked anew each time: a session that goes on may fill it again, and those behind it must not go on.
            session.hold_process_turned(self.held.is_full)
