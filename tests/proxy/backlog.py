"""Producers that publish at some rate, and a broker with a backlog without end, in conversations."""

from dataclasses import dataclass

from tests.proxy.conversation import Peer, World
from tests.proxy.wire import body, flow, message, name_of, send

STEP_S = 0.01
_QUEUE = 1000


@dataclass
class Backlog:
    """Consumer 7 and its broker, which delivers whatever it has permits for."""

    world: World
    client: Peer
    broker: Peer
    batch: int = 1
    delivered: int = 0
    delivered_bytes: int = 0
    _sent: int = 0
    _permits: int = 0
    _is_paused: bool = False

    def __post_init__(self) -> None:
        self.client >> flow(_QUEUE)

    def step(self) -> None:
        self._receive()
        for frame in self.broker.heard():
            if name_of(frame) == "FLOW":
                self._permits += body(frame).message_permits
        while self._permits > 0 and not self._is_paused:
            self._permits -= self.batch
            self.broker >> message(self._sent, messages=self.batch)
            self._sent += 1

    def go_on(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.world.advance(STEP_S)
            self.step()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def _receive(self) -> None:
        frames = [frame for frame in self.client.heard() if name_of(frame) == "MESSAGE"]
        if frames:
            self.delivered += len(frames) * self.batch
            self.delivered_bytes += sum(map(metered, frames))
            self.client >> flow(len(frames) * self.batch)


@dataclass
class Published:
    """Producer 1."""

    world: World
    client: Peer
    broker: Peer
    entry_bytes: int = 0
    _number: int = 0
    _due: float = 0.0

    def at(self, per_second: float, *, seconds: float, beside: Backlog | None = None) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.world.advance(STEP_S)
            self._due += per_second * STEP_S
            while self._due >= 1:
                self._due -= 1
                self._publish()
            self.broker.heard()
            if beside is not None:
                beside.step()

    def _publish(self) -> None:
        frame = send(self._number)
        self.entry_bytes = metered(frame)
        self.client >> frame
        self._number += 1


def metered(frame: bytes) -> int:
    """Everything behind the command."""
    return len(frame) - 8 - int.from_bytes(frame[4:8], "big")
