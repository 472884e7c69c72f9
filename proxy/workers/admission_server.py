"""Admission of a worker's sessions: the worker asks the supervisor, which counts for all workers.

    PRODUCER ─▶ ask ──Enter──▶ supervisor           its client is not read
                  ◀──Admitted, NotAdmitted──
    PRODUCER ─▶ the same again, with the answer at hand ─▶ broker, or the error to the client

So whatever a client sends behind its question keeps its place behind it, and few questions are under way, whatever
clients send. Nothing is asked where no bound is in force.
"""

from collections.abc import Callable, Iterable
from functools import partial

from limiter.admission import Slot
from limiter.workers.messages import Message
from protocol.topic_name import TopicName, parse_topic
from proxy.admission_control import OF_CONNECTIONS, Admission, AskedBound, BoundName, NotAdmittedError
from proxy.observe.connection import Connection
from proxy.observe.counters import Refusals
from proxy.session.session_admission import SessionAdmission, UndecidedError
from proxy.session.transport import Cause, PeerTransport
from proxy.workers.channel import Accepted, Admitted, Bounds, Enter, Left, NotAdmitted


class AdmissionServer:
    """Decides on admission for one worker. All workers share one `Admission`, which counts as in one process.

    Answers one worker, and keeps the places that its clients and streams have; as many as there are of these.

    Args:
        admission: The bounds of all.
        soon: Called when there is an answer for the worker.
    """

    def __init__(self, admission: Admission, soon: Callable[[], None]) -> None:
        self._admission = admission
        self._soon = soon
        self._places: dict[int, tuple[Slot, ...]] = {}
        self._answers: list[Message] = []

    def __len__(self) -> int:
        return len(self._places)

    def asked(self, message: Enter) -> None:
        """Answer a request for admission.

        Raises:
            ValueError: If the topic is none.
        """
        topic = parse_topic(message.topic) if message.topic else None
        try:
            places = self._admission.admit(message.asked, message.address, message.source, topic)
        except NotAdmittedError as error:
            self._answer(NotAdmitted(message.number, error.what, str(error), error.is_passing))
            return
        if places:
            self._places[message.number] = places
        self._answer(Admitted(message.number, bool(places)))

    def accepted(self, message: Accepted) -> None:
        """Make the places of an admitted session lasting: the broker has accepted it."""
        for place in self._places.get(message.number, ()):
            place.accepted()

    def left(self, message: Left) -> None:
        """Free the places of a session that is gone; one that was refused has none."""
        for place in self._places.pop(message.number, ()):
            place.give_back()

    def lose(self) -> None:
        """Free all places, because the worker has ended."""
        for number in list(self._places):
            self.left(Left(number))

    def take(self) -> list[Message]:
        """Remove and return the answers."""
        answers, self._answers = self._answers, []
        return answers

    def _answer(self, message: Message) -> None:
        self._answers.append(message)
        self._soon()


Decision = Admitted | NotAdmitted


class AdmissionClient:
    """Asks the supervisor for admission, for all sessions of a worker.

    Args:
        tell: Takes urgent messages to the supervisor.

    Attributes:
        of_connections: The bounds of connections that are in force.
    """

    def __init__(self, tell: Callable[[Message], None]) -> None:
        self.of_connections: tuple[BoundName, ...] = ()
        self._bounds: frozenset[str] = frozenset()
        self._tell = tell
        self._open: dict[int, Callable[[Decision], None]] = {}
        self._last = 0

    def concerning(self, asked: Iterable[AskedBound]) -> list[AskedBound]:
        """Return those of the asked bounds that are in force."""
        return [one for one in asked if one[0] in self._bounds]

    def ask(self, asked: list[AskedBound], whose: tuple[str, str], topic: str, then: Callable[[Decision], None]) -> int:
        """Call `then` with the answer; return the question's number. `whose`: as for `Admission.admit`."""
        self._last += 1
        self._open[self._last] = then
        self._tell(Enter(self._last, asked, *whose, topic))
        return self._last

    def heard(self, message: Bounds | Decision) -> None:
        """Take the bounds in force, or an answer; a session that has left meanwhile needs none."""
        if isinstance(message, Bounds):
            self._bounds = frozenset(message.in_force)
            self.of_connections = tuple(what for what in OF_CONNECTIONS if what in self._bounds)
            return
        then = self._open.pop(message.number, None)
        if then is not None:
            then(message)

    def accepted(self, number: int) -> None:
        """Tell that the broker has accepted a session."""
        self._tell(Accepted(number))

    def leave(self, number: int) -> None:
        """Tell that a session is gone, perhaps before it was answered."""
        self._open.pop(number, None)
        self._tell(Left(number))


class _RemoteSlot(Slot):
    """A place that the supervisor counts, for all bounds together.

    Args:
        admission_client: Asks the supervisor.
        number: By which it was asked for.
    """

    def __init__(self, admission_client: AdmissionClient, number: int) -> None:
        self._admission_client = admission_client
        self._number = number
        self._is_accepted = False

    def accepted(self) -> None:
        """Tell, once, that the broker has accepted the session."""
        if not self._is_accepted:
            self._is_accepted = True
            self._admission_client.accepted(self._number)

    def give_back(self) -> None:
        """Tell that the session is gone."""
        self._admission_client.leave(self._number)


class WorkerSessionAdmission(SessionAdmission):
    """The session admission of a worker: asks for one session, and keeps what it has to give back.

    Args:
        admission_client: Asks the supervisor.
        connection: The client connection of the session.
        refusals: Told of lookups and streams that are refused.
        client: The client's transport, which is not read while a question is open.
    """

    __slots__ = ("_admission_client", "_answer", "_client", "_open")

    def __init__(
        self, admission_client: AdmissionClient, connection: Connection, refusals: Refusals, client: PeerTransport
    ) -> None:
        super().__init__(connection, refusals)
        self._admission_client = admission_client
        self._client = client
        self._open: dict[int, None] = {}
        self._answer: tuple[tuple[AskedBound, ...], Decision] | None = None
        """The question and its answer, while the session asks the question again."""

    def waits(self) -> bool:
        """Return whether an answer is awaited; meanwhile the client is not read, but for its first bytes.

        A client that is closed before its first bytes are read would be reset, and might not hear why.
        """
        if self._open:
            self._pause()
        return bool(self._open)

    def disconnect(self) -> None:
        """Leave, and drop all open questions."""
        super().disconnect()
        for number in self._open:
            self._admission_client.leave(number)
        self._open.clear()

    def _admit(self, asked: Iterable[AskedBound], topic: TopicName | None = None) -> tuple[Slot, ...]:
        wanted = tuple(asked)
        if self._answer is not None and self._answer[0] == wanted:
            decision, self._answer = self._answer[1], None
            return self._obey(decision)
        concerning = self._admission_client.concerning(wanted)
        if not concerning:
            return ()
        undecided, whose = UndecidedError(), (self._connection.client_address, self._address())
        then = partial(self._decided, wanted, undecided)
        self._open[self._admission_client.ask(concerning, whose, topic.full if topic is not None else "", then)] = None
        if wanted[0][0] not in OF_CONNECTIONS:  # else it has just connected: see `waits`
            self._pause()
        raise undecided

    def _of_connections(self) -> tuple[BoundName, ...]:
        return self._admission_client.of_connections

    def _pause(self) -> None:
        self._client.throttle(Cause.ADMISSION)

    def _obey(self, decision: Decision) -> tuple[Slot, ...]:
        if isinstance(decision, NotAdmitted):
            raise NotAdmittedError(BoundName(decision.what), decision.said, is_passing=decision.is_passing)
        return (_RemoteSlot(self._admission_client, decision.number),) if decision.has_places else ()

    def _decided(self, wanted: tuple[AskedBound, ...], undecided: UndecidedError, decision: Decision) -> None:
        del self._open[decision.number]
        self._answer = wanted, decision
        try:
            undecided.again()
        finally:
            self._went_on(decision)

    def _went_on(self, decision: Decision) -> None:
        if self._answer is not None:  # something else was against it meanwhile
            self._answer = None
            self._admission_client.leave(decision.number)
        if not self._open:
            self._client.unthrottle(Cause.ADMISSION)
