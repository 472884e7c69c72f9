"""What all sessions of a process share: limits, budgets, allow-list, counters, log."""

import time
from collections.abc import Callable

from limiter.gate import Gate
from limiter.journal import Journal
from limiter.observed import Observer
from limiter.policies import Policies
from limiter.registry import Registry
from proxy.admission import Admission
from proxy.alarms import Alarms
from proxy.blocking.blocklist import Blockable, Blocklist
from proxy.brokers.lookup import LookupSlots
from proxy.brokers.targets import Targets, split_address
from proxy.config import Config
from proxy.observe.counters import Counters
from proxy.observe.hold_log import HoldLog
from proxy.sessions.holdings import ENTRY_OVERHEAD
from proxy.shared_budget import SharedBudget


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
        rehearsals = Alarms(clock, self.counters)
        budget = config.publish.hold_connection, ENTRY_OVERHEAD
        observer = Observer(rehearsals.wake_at, self.journal, budget)
        rehearsals.connect(observer.gate)
        self.dispatch_rules = config.dispatch.rules()
        self.registry = Registry(policies, self.gate, observer, self.dispatch_rules, clock)
        self.held = SharedBudget(config.publish.hold_total, HoldLog(clock).turned)
        self.lookups = LookupSlots(config.max_lookups_in_flight)
        self.admission = Admission(config, counters, clock, policies)
        self.broker = split_address(config.broker)
        self.targets = Targets([self.broker], config.allowed_brokers, config.allowed_broker_networks)
        self.sessions: set[Blockable] = set()
        """Those that are connected."""
        self.blocklist = Blocklist([block.rule() for block in config.blocks], counters, self.sessions)

    def policies_changed(self, namespace: str | None = None) -> None:
        """Put changed policies in force on live streams: those of one namespace, or of all."""
        self.admission.subscribe_rates_changed()
        self.registry.apply(self.clock(), namespace)
