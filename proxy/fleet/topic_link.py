"""A fleet's link by two topics, in the protocol of the members' own brokers.

Each member has a producer on `…-reports`, and on `…-grants` a consumer and a producer that waits for exclusive access.
The member whose producer has access coordinates, and subscribes to the reports. Both topics are non-persistent: brokers
store nothing, and a member that misses a message gets the next one a cycle later.

    every member   TopicLink._reporter ──▶ …-reports ──▶ _Candidate._reports    the coordinator
                   _Candidate.hearer   ◀── …-grants  ◀── _Candidate, which has exclusive access

A broker's exclusive access (4.0.8, in tests/real/test_fleet_link.py):

- The coordinator's process is killed: its connection ends, and the next in line is ready at once.
- The coordinator's process hangs: its connection stays open. Therefore a waiting member that hears no grants for
  `SILENT_LEASES` takes access with ExclusiveWithFencing. All other waiting members get ProducerFenced, and ask again.
- The coordinator is fenced out: the broker closes its producer without a CLOSE_PRODUCER, and drops its later messages.
  The coordinator notices by its own consumer: if it hears no grant of its own for a lease, it gives access up.
- The topic's bundle is unloaded: all producers are closed, and the first that connects again gets access.

Source: org.apache.pulsar.broker.service.AbstractTopic.incrementTopicEpochIfNeeded, which calls Producer.close(true)
rather than disconnect (pulsar-broker 4.0.8)
"""

import asyncio
import contextlib
import time
from collections import deque
from random import uniform
from typing import Final, NamedTuple

from fleet.messages import MOST_MESSAGE
from protocol.pulsar_pb2 import CommandProducer, CommandProducerSuccess, ProducerAccessMode
from proxy.brokers.dialing import BrokerDialer
from proxy.fleet.link import MOST_PAUSE_S, Callbacks, LinkState
from proxy.fleet.pulsar_connection import Auth, BrokerClient, BrokerConnection, TopicConsumer, TopicEntry, TopicProducer

SILENT_LEASES: Final = 1.5
"""Lease times after which a silent coordinator is replaced; each member waits up to half as long again."""


def topics(namespace: str, fleet: str) -> tuple[str, str]:
    """Return the topics of a fleet: of its reports, and of its grants."""
    return f"non-persistent://{namespace}/{fleet}-reports", f"non-persistent://{namespace}/{fleet}-grants"


class Membership(NamedTuple):
    """The names by which one member finds the topics of its fleet, and the fleet's lease.

    Attributes:
        namespace: The namespace of the fleet's topics: `tenant/namespace`.
        fleet: The fleet's name.
        member: The member's name, unique in the fleet.
        lease_s: Seconds for which a share lasts, and after which a coordinator gives up that hears no own grants.
    """

    namespace: str
    fleet: str
    member: str
    lease_s: float = 2.0


class _Candidate(TopicProducer):
    """A member's producer of grants: waits for exclusive access, and makes the member coordinate while it has access.

        waits in line ─ready─▶ leads ─closed─▶ opened again: waits in line
              └─the coordinator is silent─▶ opened again: takes access

    Its consumer of grants shows that the coordinator is silent, or that its own grants reach no member. Its consumer of
    reports is open while it leads.

    Args:
        client: The client of the brokers.
        membership: The member, and its fleet.
        callbacks: Called with reports and grants, and when this member begins or ceases to coordinate.
    """

    def __init__(self, client: BrokerClient, membership: Membership, callbacks: Callbacks) -> None:
        reports, grants = topics(membership.namespace, membership.fleet)
        super().__init__(client, grants)
        self.hearer = TopicConsumer(client, grants, self._granted, self._hears)
        self.is_leading = False
        self.silence_s = SILENT_LEASES * membership.lease_s
        self.lease_s = membership.lease_s
        self._callbacks = callbacks
        self._reports = TopicConsumer(client, reports, self._reported, self._hears)
        self._hears_reports: asyncio.Task[None] | None = None
        self._takes = False
        """Whether it takes access at the next opening, instead of waiting for it."""
        self._heard_at = 0.0
        """The time of the last grants, or of a consumer's opening, by the loop's clock."""
        self._granted_at = 0.0
        """The time of the last grants, by the loop's clock."""
        self._heard_own_at = 0.0
        """The time of this member's own last grants, or at which it got access, by the loop's clock."""
        self._unheard_at = 0.0
        """While leading: the sending time of this member's first report that it has not heard; 0 if none."""
        self._timer: asyncio.TimerHandle | None = None
        self._sent: deque[tuple[int, int]] = deque(maxlen=1000)
        """The sequences of grants without a receipt, and when they were sent: monotonic nanoseconds."""

    async def open(self, connection: BrokerConnection) -> None:
        """Ask for exclusive access, which a broker may give much later."""
        is_silent = asyncio.get_running_loop().time() - self._heard_at > self.silence_s
        takes = self._takes and is_silent  # else another member has taken access
        mode = ProducerAccessMode.ExclusiveWithFencing if takes else ProducerAccessMode.WaitForExclusive
        self._takes = False
        request = CommandProducer(topic=self.topic, producer_id=self.id, producer_access_mode=mode)
        await connection.request(request, CommandProducerSuccess, self)

    async def _stay(self) -> None:
        """Return when this producer is closed, or when it should take the access of a silent coordinator."""
        clock = asyncio.get_running_loop().time
        while not self._ended.is_set():
            due = max(self._heard_at, clock() - self.silence_s) + self.silence_s * uniform(1, 1.5)  # noqa: S311
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._ended.wait()
            now = clock()
            if now > due + 1:
                self._heard_at = now  # this process hung: grants may wait to be read
            is_silent = now - self._heard_at > self.silence_s
            if is_silent and not self.is_leading and self.hearer.is_open and not self._ended.is_set():
                self._takes = True
                return

    def ready(self) -> None:
        """Called when the broker has given this producer exclusive access: this member coordinates."""
        if self.connection is not None and not self._ended.is_set():
            self.is_leading = self._is_opened = True
            self._sent.clear()
            self._heard_own_at = asyncio.get_running_loop().time()
            self._unheard_at = 0.0
            self._look()
            self.client.counts.takeovers += 1
            self._hears_reports = self.client.tasks.start(self._reports.run)
            self._callbacks.on_lead()

    def _look(self) -> None:
        """Called by a timer while leading: give access up if no grant of this member's own was heard for a lease.

        If no other grants came either, open the consumer of grants again. Open the consumer of reports again if this
        member's own reports did not arrive for a lease: then no others arrive.
        """
        loop = asyncio.get_running_loop()
        due = self._heard_own_at + self.lease_s
        if loop.time() >= due:
            self.closed()
            if self._granted_at <= self._heard_own_at:
                self.hearer.closed()
            return
        if self._unheard_at and loop.time() - self._unheard_at >= self.lease_s:
            self._unheard_at = 0.0
            self._reports.closed()
        self._timer = loop.call_at(due, self._look)

    def closed(self) -> None:
        """Called when the broker or the connection has ended this producer, or another one has fenced it out."""
        super().closed()
        if self._timer is not None:
            self._timer.cancel()
        if self.is_leading:
            self.is_leading = False
            if self._hears_reports is not None:
                self._hears_reports.cancel()
                self._hears_reports = None
            self._callbacks.on_unlead()

    def send(self, message: bytes, key: str = "") -> int:
        """Publish grants, as `TopicProducer.send` does."""
        sent_at = time.monotonic_ns()
        sequence = super().send(message, key)
        if sequence:
            self._sent.append((sequence, sent_at))
        return sequence

    def receipt(self, sequence: int) -> None:
        """Called when the broker has taken grants: this member was the coordinator when it sent them.

        That may be long ago if this process hung since.
        """
        sent_at = 0
        while self._sent and self._sent[0][0] <= sequence:
            sent_at = self._sent.popleft()[1]
        if self.is_leading and sent_at:
            self._callbacks.on_confirmed(sent_at)

    def reports_go(self) -> None:
        """Called when this member has sent a report, which comes back while it leads."""
        if self.is_leading and not self._unheard_at:
            self._unheard_at = asyncio.get_running_loop().time()

    def _reported(self, entry: TopicEntry) -> None:
        self._unheard_at = 0.0
        self._callbacks.on_report(entry.message)

    def _hears(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()

    def _granted(self, entry: TopicEntry) -> None:
        self._hears()
        self._granted_at = self._heard_at
        if entry.sender == self.client.sender:
            self._heard_own_at = self._heard_at
        self._callbacks.on_grant(entry.message)


class TopicLink:
    """A member's link by the topics of its fleet.

    Args:
        dialer: Connects to the configured brokers, which are asked first, and to brokers that they name.
        membership: The member, and its fleet.
        callbacks: Called with reports and grants, and when this member begins or ceases to coordinate.
        auth: The credentials that brokers are shown; None: none.
    """

    def __init__(
        self,
        dialer: BrokerDialer,
        membership: Membership,
        callbacks: Callbacks,
        auth: Auth | None = None,
    ) -> None:
        reports, _ = topics(membership.namespace, membership.fleet)
        pause_s = min(MOST_PAUSE_S, membership.lease_s)
        self.client = BrokerClient(dialer, auth, membership.member, MOST_MESSAGE, pause_s)
        self.counts = self.client.counts
        self._reporter = TopicProducer(self.client, reports)
        self._candidate = _Candidate(self.client, membership, callbacks)

    @property
    def state(self) -> LinkState:
        """Whether reports and grants can pass, and whether this member coordinates."""
        if self._candidate.is_leading:
            return "leading"
        return "following" if self._reporter.is_open and self._candidate.hearer.is_open else "connecting"

    @property
    def refused(self) -> bool:
        """Whether brokers refused at once the last time, rather than being silent."""
        return self.client.is_refused

    @property
    def problem(self) -> str:
        """Why the topics are not reached; empty if they are."""
        return self.client.problem(self._reporter.topic) if self.state == "connecting" else ""

    @property
    def remedy(self) -> str:
        """The remedy of the problem, if known."""
        return self.client.remedy(self._reporter.topic) if self.state == "connecting" else ""

    @property
    def finds_nothing(self) -> bool:
        """Whether brokers say that there are no such topics, or no such namespace."""
        return self.state == "connecting" and self.client.finds_nothing

    async def start(self) -> None:
        """Begin to connect. Return before anything is connected."""
        for each in (self._candidate.hearer, self._reporter, self._candidate):
            self.client.tasks.start(each.run)

    async def stop(self) -> None:
        """End: no connection, task or timer is left."""
        await self.client.stop()

    def report(self, message: bytes) -> bool:
        """Send a report to the present coordinator; False: it cannot be sent now."""
        is_sent = self._reporter.send(message) > 0
        if is_sent:
            self._candidate.reports_go()
        return is_sent

    def grant(self, message: bytes) -> bool:
        """Send grants to all members; False: not leading, or they cannot be sent now."""
        return self._candidate.is_leading and self._candidate.send(message) > 0
