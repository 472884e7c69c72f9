"""A world whose sessions ask as those of a worker do: the answers come by letters, later, from a doorkeeper."""

from typing import Any

import msgspec
import pytest

from limiter.workers.messages import Message
from proxy.observe.connection import Connection
from proxy.observe.log_lines import Shown, as_they_are
from proxy.session.transport import PeerTransport
from proxy.workers.admission_server import AdmissionClient, AdmissionServer, WorkerSessionAdmission
from proxy.workers.channel import Accepted, Bounds, Down, Enter, Left, Up
from tests.proxy.conversation import World

_AS_BYTES = msgspec.msgpack.Encoder()


class FarWorld(World):
    """Worker and supervisor in one; what one says, the other hears in its next turn, or when the test says so."""

    def __init__(self, shown: Shown = as_they_are, **settings: Any) -> None:
        super().__init__(shown, **settings)
        self.is_answering = True
        self.is_delivering = True
        self.asked: list[Message] = []
        """Not heard yet."""
        self.far = AdmissionClient(self._to_supervisor)
        self.doorkeeper = AdmissionServer(self.engine.admission, self._to_worker)
        self.engine.session_admission = self._admission  # type: ignore[method-assign]  # as a worker's engine does
        self.engine.admission.changed = self._bounds_changed
        self._bounds_changed()

    def hear(self) -> None:
        """The supervisor has its turn; what it says arrives, if anything does now."""
        self.loop.run(self._hear)

    def close(self) -> None:
        """End everything; then nothing is left of any question either."""
        self.is_answering = self.is_delivering = True
        self.hear()
        self.loop.run(self._answer_all)
        super().close()
        assert self.far._open == {}
        assert len(self.doorkeeper) == 0

    def _admission(self, connection: Connection, client: PeerTransport) -> WorkerSessionAdmission:
        return WorkerSessionAdmission(self.far, connection, self.engine.rejects, client)

    def _bounds_changed(self) -> None:
        self.far.heard(Bounds(sorted(self.engine.admission.in_force)))

    def _to_supervisor(self, letter: Message) -> None:
        self.asked.append(msgspec.msgpack.decode(_AS_BYTES.encode(letter), type=Up))
        if self.is_answering:
            self.loop.call_soon(self._hear)

    def _hear(self) -> None:
        letters, self.asked = self.asked, []
        for letter in letters:
            if isinstance(letter, Enter):
                self.doorkeeper.asked(letter)
            elif isinstance(letter, Accepted):
                self.doorkeeper.accepted(letter)
            elif isinstance(letter, Left):
                self.doorkeeper.left(letter)

    def _to_worker(self) -> None:
        if self.is_delivering:
            self.loop.call_soon(self._answer_all)

    def _answer_all(self) -> None:
        for letter in self.doorkeeper.take():
            self.far.heard(msgspec.msgpack.decode(_AS_BYTES.encode(letter), type=Down))


@pytest.fixture(name="world_kind", params=[World, FarWorld])
def near_and_far(request: pytest.FixtureRequest) -> type[World]:
    """In place of `world_kind`: each test of a module is made in both worlds, and both behave the same."""
    kind: type[World] = request.param
    return kind
