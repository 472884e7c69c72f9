"""A world whose sessions ask as those of a worker do: the answers come by messages, later, from a admission server."""

from typing import Any

import msgspec
import pytest

from limiter.workers.messages import Message
from proxy.observe.connection import Connection
from proxy.observe.log_lines import ShowAddress, as_they_are
from proxy.session.transport import PeerTransport
from proxy.workers.admission_server import AdmissionClient, AdmissionServer, WorkerSessionAdmission
from proxy.workers.channel import Accepted, Bounds, Down, Enter, Left, Up
from tests.proxy.conversation import World

_AS_BYTES = msgspec.msgpack.Encoder()


class RemoteAdmissionWorld(World):
    """Worker and supervisor in one; what one says, the other hears in its next turn, or when the test says so."""

    def __init__(self, shown: ShowAddress = as_they_are, **settings: Any) -> None:
        super().__init__(shown, **settings)
        self.is_answering = True
        self.is_delivering = True
        self.asked: list[Message] = []
        """Not heard yet."""
        self.admission_client = AdmissionClient(self._to_supervisor)
        self.admission_server = AdmissionServer(self.engine.admission, self._to_worker)
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
        assert self.admission_client._open == {}
        assert len(self.admission_server) == 0

    def _admission(self, connection: Connection, client: PeerTransport) -> WorkerSessionAdmission:
        return WorkerSessionAdmission(self.admission_client, connection, self.engine.refusals, client)

    def _bounds_changed(self) -> None:
        self.admission_client.heard(Bounds(sorted(self.engine.admission.in_force)))

    def _to_supervisor(self, message: Message) -> None:
        self.asked.append(msgspec.msgpack.decode(_AS_BYTES.encode(message), type=Up))
        if self.is_answering:
            self.loop.call_soon(self._hear)

    def _hear(self) -> None:
        messages, self.asked = self.asked, []
        for message in messages:
            if isinstance(message, Enter):
                self.admission_server.asked(message)
            elif isinstance(message, Accepted):
                self.admission_server.accepted(message)
            elif isinstance(message, Left):
                self.admission_server.left(message)

    def _to_worker(self) -> None:
        if self.is_delivering:
            self.loop.call_soon(self._answer_all)

    def _answer_all(self) -> None:
        for message in self.admission_server.take():
            self.admission_client.heard(msgspec.msgpack.decode(_AS_BYTES.encode(message), type=Down))


@pytest.fixture(name="world_kind", params=[World, RemoteAdmissionWorld])
def near_and_far(request: pytest.FixtureRequest) -> type[World]:
    """In place of `world_kind`: each test of a module is made in both worlds, and both behave the same."""
    kind: type[World] = request.param
    return kind
