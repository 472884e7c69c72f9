"""Producers of two clients come and go in any order: the places taken are exactly those that a model counts."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandCloseProducer, CommandProducerSuccess
from tests.examples import examples
from tests.proxy.conversation import BROKER, Peer, World
from tests.proxy.fake_transport import FakeTransport
from tests.proxy.kernel_transport import KernelTransport
from tests.proxy.wire import close_producer, error, producer, success

MOST = 3
Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("open", "accept", "refuse", "close", "closed", "broker closes", "leave")),
        st.sampled_from((0, 1)),
        st.sampled_from((1, 2)),
    ),
    min_size=20,
    max_size=60,
)


class Model:
    """What each client's producers are in, by id: `opening`, `open`, `closing`, with the request that is unanswered."""

    def __init__(self, transports: type[FakeTransport]) -> None:
        self.world = World(transports=transports, admission={"max_producers_per_topic": MOST})
        self.peers = [self._pair(), self._pair()]
        self.states: list[dict[int, tuple[str, int]]] = [{}, {}]
        self._requests = 0
        self._steps: dict[str, Callable[[int, int], None]] = {
            "open": self._open,
            "accept": self._accept,
            "refuse": self._refuse,
            "close": self._close,
            "closed": self._closed,
            "broker closes": self._broker_closes,
            "leave": self._leave,
        }

    def step(self, step: Step) -> None:
        name, client, producer_id = step
        self._steps[name](client, producer_id)
        for peer in self.peers[client]:
            peer.heard()
        taken = sum(map(len, self.states))
        assert taken <= MOST
        assert self.world.engine.admission.taken == 1 + bool(taken), "one address's connections, one topic's producers"
        assert self.world.engine.admission.provisional == bool(self._opening())

    def _pair(self) -> tuple[Peer, Peer]:
        return self.world.pair(f"{BROKER[0]}:{BROKER[1]}")

    def _request(self) -> int:
        self._requests += 1
        return self._requests

    def _is(self, client: int, producer_id: int, *wanted: str) -> bool:
        return self.states[client].get(producer_id, ("", 0))[0] in wanted

    def _open(self, client: int, producer_id: int) -> None:
        if self._is(client, producer_id, "opening", "open", "closing"):
            return
        (of_client, of_broker), request_id = self.peers[client], self._request()
        free = MOST - sum(map(len, self.states))
        is_admitted = self._opening() < free
        of_client >> producer(producer_id, request_id=request_id)
        assert of_broker.heard_names() == ["PRODUCER"] * is_admitted
        assert of_client.heard_names() == ["ERROR"] * (not is_admitted)
        if is_admitted:
            self.states[client][producer_id] = "opening", request_id

    def _opening(self) -> int:
        """Of both clients: they have one address."""
        return sum(state == "opening" for states in self.states for state, _ in states.values())

    def _accept(self, client: int, producer_id: int) -> None:
        if self._is(client, producer_id, "opening"):
            request_id = self.states[client][producer_id][1]
            self.peers[client][1] >> encode(CommandProducerSuccess(request_id=request_id, producer_name="p"))
            self.states[client][producer_id] = "open", 0

    def _refuse(self, client: int, producer_id: int) -> None:
        if self._is(client, producer_id, "opening"):
            self.peers[client][1] >> error(self.states[client].pop(producer_id)[1])

    def _close(self, client: int, producer_id: int) -> None:
        if self._is(client, producer_id, "open"):
            request_id = self._request()
            self.peers[client][0] >> CommandCloseProducer(producer_id=producer_id, request_id=request_id)
            self.states[client][producer_id] = "closing", request_id

    def _closed(self, client: int, producer_id: int) -> None:
        if self._is(client, producer_id, "closing"):
            self.peers[client][1] >> success(self.states[client].pop(producer_id)[1])

    def _broker_closes(self, client: int, producer_id: int) -> None:
        if self._is(client, producer_id, "open", "closing"):
            self.peers[client][1] >> close_producer(producer_id)
            del self.states[client][producer_id]

    def _leave(self, client: int, _producer_id: int) -> None:
        self.peers[client][0].leave()
        self.states[client].clear()
        self.peers[client] = self._pair()


@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS, transports=st.sampled_from([KernelTransport, FakeTransport]))
def test_the_places_are_those_of_the_producers_that_there_are(
    steps: list[Step], transports: type[FakeTransport]
) -> None:
    model = Model(transports)
    try:
        for step in steps:
            model.step(step)
    finally:
        model.world.close()
