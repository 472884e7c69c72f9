"""One peer of a session, on a transport that is not there."""

from protocol.frames import ProtocolError
from proxy.counters import Counters
from proxy.session.transport import PauseReason, PeerTransport, TransportContext, TransportOwner
from proxy.slices import Slices
from tests.manual_clock import ManualClock
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.manual_loop import ManualLoop


class Owner(TransportOwner):
    """Notes what a peer's transport tells."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def arrived(self, _peer: PeerTransport, chunk: bytes) -> None:
        self.told.append(("arrived", chunk))

    def broke_protocol(self, _peer: PeerTransport, error: ProtocolError) -> None:
        self.told.append(("broke protocol", error.cause))

    def writable(self, _peer: PeerTransport, is_writable: bool) -> None:  # noqa: FBT001 - as TransportOwner has it
        self.told.append(("writable", is_writable))

    def opened(self, _peer: PeerTransport) -> None:
        self.told.append(("opened",))

    def half_closed(self, _peer: PeerTransport) -> None:
        self.told.append(("half closed",))

    def not_taken(self, _peer: PeerTransport, unsent: int, seconds: float) -> None:
        self.told.append(("not taken", unsent, seconds))

    def lost(self, _peer: PeerTransport, error: Exception | None) -> None:
        self.told.append(("lost", error))

    def throttle_changed(self, _peer: PeerTransport, reason: PauseReason, is_added: bool) -> None:  # noqa: FBT001 - as TransportOwner has it
        self.told.append((reason, is_added))

    def read_on(self, peer: PeerTransport) -> None:
        self.told.append(("read on",))
        peer.resume_reading()


class Wired:
    """A peer's transport, on a loop's transport that is not there.

    Args:
        transports: The kind of its transport.
        descriptor: Where its bytes go past the transport.
    """

    def __init__(self, transports: type[FakeTransport] = FakeTransport, descriptor: int = -1) -> None:
        self.loop = ManualLoop(ManualClock())
        self.owner = Owner()
        counters = Counters()
        shared = TransportContext(counters, Slices(counters, ManualClock()))
        self.line = shared.line
        self.peer = PeerTransport("broker", self.owner, shared)
        self.transport = transports(self.loop, ("192.0.2.1", 1234))
        self.transport.descriptor = descriptor
        self.loop.run(self.transport.connect, self.peer)

    def close(self) -> None:
        """End it, and check what holds at the end of every test."""
        if not self.transport.is_lost:
            self.loop.run(self.transport.break_off, None)
        assert not self.loop.trouble
        self.loop.close()
