"""What all sessions of a process share: limits, budgets, allow-list, counters.

Engine ◀── NearEngine: the limits are in this process
       ◀── FarEngine: they are in another one           (`workers/far.py`)
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from limiter.changes import Change
from limiter.gate import Gate
from limiter.journal import Journal
from limiter.levels import Client, Topic
from limiter.observed import Observer
from limiter.passage import Passage
from limiter.policies import Policies
from limiter.registry import Registry
from limiter.stream import Answering, Entry, Stream
from proxy.admission import Admission
from proxy.alarms import Alarms
from proxy.blocking.blocklist import Blockable, Blocklist
from proxy.brokers.lookup import LookupSlots
from proxy.brokers.targets import Targets, split_address
from proxy.config.model import Config
from proxy.observe.connection import Connection
from proxy.observe.counters import Counters
from proxy.observe.disbelief import Disbelief
from proxy.observe.hold_log import HoldLog
from proxy.observe.rejects import Rejects
from proxy.sessions.admittance import Admittance, NearAdmittance
from proxy.sessions.dialler import Dialler
from proxy.sessions.holdings import ENTRY_OVERHEAD
from proxy.sessions.leg import Leg
from proxy.sessions.read_buffer import ReadBuffer
from proxy.sessions.reading_line import ReadingLine
from proxy.shared_budget import SharedBudget


class Enrolment(Protocol):
    """Where streams begin and end: a `Registry`, or whoever tells one in another process."""

    def open(self, stream: Stream, topic: Topic, now: int, client: Client) -> None:
        """A stream of `topic` begins."""

    def meter(self, stream: Stream, grant: Callable[[int], None]) -> None:
        """A stream that has been opened is a consumer, whose permits are passed on with `grant`."""

    def answer(self, stream: Stream, answering: Answering) -> None:
        """A stream that has been opened is a producer."""

    def name(self, stream: Stream, producer_name: str, now: int) -> None:
        """The broker accepted a producer, and perhaps named it."""

    def when_decided(self, streams: Iterable[Stream], then: Callable[[], None]) -> None:
        """Call `then` when what is held of these streams is held by a limit, and not only on its way to be judged."""

    def close(self, stream: Stream, now: int) -> list[Entry]:
        """A stream ends. Gives back what it held."""


class Engine:
    """The parts that outlive a session, whoever decides what passes.

    Args:
        config: The configuration.
        counters: What the data path counts into.
        clock: Monotonic nanoseconds.

    Attributes:
        gate: What of their entries passes; a subclass sets it, and the next.
        registry: Told of their streams.
    """

    gate: Passage
    registry: Enrolment

    def __init__(self, config: Config, counters: Counters, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.config = config
        self.clock = clock
        self.counters = counters
        self.disbelief = Disbelief(counters, clock)
        self.dispatch_rules = config.dispatch.rules()
        self.held = SharedBudget(config.publish.hold_total, HoldLog(clock).turned)
        self.reading_line = ReadingLine()
        self.read_buffer = ReadBuffer()
        self.rejects = Rejects()
        self.lookups = LookupSlots(config.max_lookups_in_flight)
        self.broker = split_address(config.broker)
        self.targets = Targets([self.broker], config.allowed_brokers, config.allowed_broker_networks)
        self.dialler = Dialler(config, self.targets)
        self.sessions: set[Blockable] = set()
        """Those that are connected."""
        self.blocklist = Blocklist([block.rule() for block in config.blocks], counters, self.sessions)

    def admittance(self, connection: Connection, client: Leg) -> Admittance:
        """What a session asks whether its client, its lookups and its streams may come in."""
        raise NotImplementedError


class NearEngine(Engine):
    """With the limits of all sessions, or of those of all workers.

    Args:
        config: The configuration.
        policies: Limits by level.
        counters: What the data path counts into.
        activity: Called when some stream has something to report to the access log.
        clock: Monotonic nanoseconds.
    """

    gate: Gate
    registry: Registry

    def __init__(
        self,
        config: Config,
        policies: Policies,
        counters: Counters,
        activity: Callable[[], None],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(config, counters, clock)
        self.journal = Journal(activity)
        alarms = Alarms(clock, counters)
        self.gate = Gate(alarms.wake_at, self.journal)
        alarms.connect(self.gate)
        rehearsals = Alarms(clock, counters)
        budget = config.publish.hold_connection, ENTRY_OVERHEAD
        observer = Observer(rehearsals.wake_at, self.journal, budget)
        rehearsals.connect(observer.gate)
        self.registry = Registry(policies, self.gate, observer, self.dispatch_rules, clock)
        self.admission = Admission(config, counters, clock, policies)
        self._goes_on = False

    def admittance(self, connection: Connection, client: Leg) -> Admittance:  # noqa: ARG002 - a worker's needs it
        """What a session asks whether its client, its lookups and its streams may come in."""
        return NearAdmittance(self.admission, connection, self.rejects)

    def policies_changed(self, changes: Iterable[Change] | None = None) -> None:
        """Put changed policies in force on live streams, soon; None: all are others, and they are in force at once."""
        changed = None if changes is None else list(changes)
        if changed is None or any(change.about == "subscribe" for change in changed):
            self.admission.subscribe_rates_changed()
        if changed is None:
            self.registry.apply(self.clock())
            return
        try:
            self.registry.change(changed, self.clock())
        finally:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        """In slices, so that nobody waits for all streams."""
        if self.registry.is_changing and not self._goes_on:
            self._goes_on = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        try:
            self.registry.go_on(self.clock())
        finally:
            self._go_on_soon()
