"""One of several clients, with its broker, and what they have said."""

from dataclasses import dataclass, field

from protocol.frames import FrameCutter
from proxy.session.forwarding import Forwarding
from proxy.session.session import Session
from proxy.session.transport import PauseReason
from tests.proxy.conversation import Peer
from tests.proxy.wire import PONG, body, name_of, receipt


@dataclass(eq=False)
class Party:
    """One client with four producers, and its broker.

    Attributes:
        unsent: What the client has not sent yet of what it has to send.
        sent: The frames of each producer, whether they have left the client or not.
        came: Those of them that the broker has read.
        answered: How many of those it has answered.
        closed: The producers that it has closed.
        rest: What it has read of a frame whose end is missing.
    """

    session: Session
    client: Peer
    broker: Peer
    unsent: bytes = b""
    sent: dict[int, list[bytes]] = field(default_factory=lambda: {number: [] for number in (1, 2, 3, 4)})
    came: dict[int, list[bytes]] = field(default_factory=lambda: {number: [] for number in (1, 2, 3, 4)})
    answered: dict[int, int] = field(default_factory=lambda: dict.fromkeys((1, 2, 3, 4), 0))
    closed: set[int] = field(default_factory=set)
    pongs: int = 0
    rest: bytes = b""

    def hear(self) -> None:
        """Take what the broker got."""
        data = self.rest + self.broker.transport.written
        self.broker.transport.written.clear()
        frames = list(FrameCutter(2**31).feed(data))
        self.rest = data[sum(map(len, frames)) :]
        for frame in frames:
            if name_of(frame) == "SEND":
                self.came[body(frame).producer_id].append(frame)
            self.pongs += frame == PONG

    def on_its_way(self) -> list[bytes]:
        """Whole frames that the broker will have got when it has read all."""
        return list(FrameCutter(2**31).feed(self.rest + self.broker.transport.on_its_way))

    def answer(self, number: int) -> None:
        """The broker answers the oldest publish of a producer."""
        self.answered[number] += 1
        self.broker >> receipt(self.answered[number] - 1, number)

    def answer_all(self) -> None:
        """And what passes because of that."""
        self.hear()
        while waiting := [number for number in self.came if self.pending(number) > 0]:
            for number in waiting:
                self.answer(number)
            self.hear()

    def pending(self, number: int) -> int:
        return 0 if number in self.closed else len(self.came[number]) - self.answered[number]

    @property
    def pause_reasons(self) -> frozenset[PauseReason]:
        return self.session.client.pause_reasons


def traffic_of(session: Session) -> Forwarding:
    """What goes between a client and its broker that have said more than their greetings."""
    assert session.forwarding is not None, "nothing has been said yet behind the greetings"
    return session.forwarding
