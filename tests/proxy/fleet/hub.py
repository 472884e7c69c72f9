"""Links of members of one fleet in one process, which tests can cut."""

import asyncio
from collections.abc import Callable

from proxy.fleet.link import Callbacks, LinkCounts, LinkState
from tests.manual_clock import ManualClock


class Hub:
    """Carries messages between members; the first one that is there leads."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.links: list[HubLink] = []
        self.is_cut = False
        self.granted_at: list[int] = []
        self.takes_s = 0.0
        """So long it takes to make grants."""

    def report(self, message: bytes) -> None:
        """A report arrives."""
        if self.links:
            self.links[0].callbacks.on_report(message)


class HubLink:
    """A link by the hub."""

    def __init__(self, hub: Hub, callbacks: Callbacks) -> None:
        self.counts = LinkCounts()
        self.refused = False
        self.problem = "nobody is there"
        self.remedy = ""
        self.finds_nothing = False
        self.sent: list[int] = []
        """The sizes of messages."""
        self.loses = 0
        """So many of the next reports are lost."""
        self.delay_s = 0.0
        """What is sent by this link arrives so much later, and what is sent to it."""
        self.hub, self.callbacks = hub, callbacks
        self.reported_at: list[int] = []

    @property
    def state(self) -> LinkState:
        if self not in self.hub.links:
            return "connecting"
        return "leading" if self.hub.links[0] is self else "following"

    async def start(self) -> None:
        self.hub.links.append(self)
        if self.state == "leading":
            self.callbacks.on_lead()

    async def stop(self) -> None:
        led = self.state == "leading"
        self.hub.links.remove(self)
        if led and self.hub.links:
            self.hub.links[0].callbacks.on_lead()

    def report(self, message: bytes) -> bool:
        self.reported_at.append(self.hub.clock())
        if self.hub.is_cut or not self.hub.links:
            return False
        self.counts.messages_out += 1
        self.sent.append(len(message))
        if self.loses:
            self.loses -= 1
        else:
            self._carry(self.hub.report, message)
        return True

    def grant(self, message: bytes) -> bool:
        if self.hub.is_cut:
            return False
        self.hub.granted_at.append(self.hub.clock())
        self.hub.clock.advance(self.hub.takes_s)
        self.sent.append(len(message))
        self.callbacks.on_confirmed(self.hub.clock())
        for link in list(self.hub.links):
            link._carry(link.callbacks.on_grant, message)
        return True

    def _carry(self, to: Callable[[bytes], None], message: bytes) -> None:
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, to, message)
        else:
            to(message)
