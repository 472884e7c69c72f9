"""What sessions of a worker ask before they let somebody in: the supervisor counts for all workers.

    PRODUCER ─▶ ask ──Enter──▶ supervisor           its client is not read
                  ◀──Admitted, NotAdmitted──
    PRODUCER ─▶ the same again, with the answer at hand ─▶ broker, or the error to the client

So whatever a client sends behind its question keeps its place behind it, and few questions are under way, whatever
clients send. Nothing is asked where no bound is in force.
"""

from collections.abc import Callable, Iterable
from functools import partial

from limiter.admission import Slot
from limiter.workers.letters import Letter
from protocol.topic_name import TopicName
from proxy.admission_control import OF_CONNECTIONS, Asked, NotAdmittedError, What
from proxy.observe.connection import Connection
from proxy.observe.counters import Rejects
from proxy.session.session_admission import SessionAdmission, UndecidedError
from proxy.session.transport import Cause, PeerTransport
from proxy.workers.letters import Accepted, Admitted, Bounds, Enter, Left, NotAdmitted

Decision = Admitted | NotAdmitted


class FarAdmission:
    """Asks the supervisor, for all sessions of a worker.

    Args:
        tell: Takes what is to be told it soon.

    Attributes:
        of_connections: The bounds of connections that are in force.
    """

    def __init__(self, tell: Callable[[Letter], None]) -> None:
        self.of_connections: tuple[What, ...] = ()
        self._bounds: frozenset[str] = frozenset()
        self._tell = tell
        self._open: dict[int, Callable[[Decision], None]] = {}
        self._last = 0

    def concerning(self, asked: Iterable[Asked]) -> list[Asked]:
        """Those of the bounds that are in force."""
        return [one for one in asked if one[0] in self._bounds]

    def ask(self, asked: list[Asked], whose: tuple[str, str], topic: str, then: Callable[[Decision], None]) -> int:
        """Call `then` with the answer; gives the question's number. `whose`: as `Admission.admit` is told."""
        self._last += 1
        self._open[self._last] = then
        self._tell(Enter(self._last, asked, *whose, topic))
        return self._last

    def heard(self, letter: Bounds | Decision) -> None:
        """The supervisor says which bounds are in force, or answers; who has left meanwhile has said so."""
        if isinstance(letter, Bounds):
            self._bounds = frozenset(letter.in_force)
            self.of_connections = tuple(what for what in OF_CONNECTIONS if what in self._bounds)
            return
        then = self._open.pop(letter.number, None)
        if then is not None:
            then(letter)

    def accepted(self, number: int) -> None:
        """The broker has let in who asked by this number."""
        self._tell(Accepted(number))

    def leave(self, number: int) -> None:
        """Who asked by this number is gone, perhaps before he was answered."""
        self._open.pop(number, None)
        self._tell(Left(number))


class _FarPlace(Slot):
    """What the supervisor counts, of all bounds together.

    Args:
        far: Who knows the supervisor.
        number: By which it was asked for.
    """

    def __init__(self, far: FarAdmission, number: int) -> None:
        self._far = far
        self._number = number
        self._is_accepted = False

    def accepted(self) -> None:
        """The broker has let in who has it; that is told once."""
        if not self._is_accepted:
            self._is_accepted = True
            self._far.accepted(self._number)

    def give_back(self) -> None:
        """He is gone."""
        self._far.leave(self._number)


class FarSessionAdmission(SessionAdmission):
    """Asks for one session, and keeps what it has to give back.

    Args:
        far: Who knows the supervisor.
        connection: Whose session it is.
        rejects: Told of lookups and streams that are refused.
        client: Who is not read while a question is open.
    """

    __slots__ = ("_answer", "_client", "_far", "_open")

    def __init__(self, far: FarAdmission, connection: Connection, rejects: Rejects, client: PeerTransport) -> None:
        super().__init__(connection, rejects)
        self._far = far
        self._client = client
        self._open: dict[int, None] = {}
        self._answer: tuple[tuple[Asked, ...], Decision] | None = None
        """What was asked and what was answered, while who asked asks again."""

    def waits(self) -> bool:
        """Whether an answer is awaited; then the client is not read, but for the first that it says.

        Who is closed before that is read would be reset, and might not hear why.
        """
        if self._open:
            self._pause()
        return bool(self._open)

    def disconnect(self) -> None:
        """The client goes, and whatever waits for an answer with it."""
        super().disconnect()
        for number in self._open:
            self._far.leave(number)
        self._open.clear()

    def _admit(self, asked: Iterable[Asked], topic: TopicName | None = None) -> tuple[Slot, ...]:
        wanted = tuple(asked)
        if self._answer is not None and self._answer[0] == wanted:
            decision, self._answer = self._answer[1], None
            return self._obey(decision)
        concerning = self._far.concerning(wanted)
        if not concerning:
            return ()
        undecided, whose = UndecidedError(), (self._connection.client_address, self._address())
        then = partial(self._decided, wanted, undecided)
        self._open[self._far.ask(concerning, whose, topic.full if topic is not None else "", then)] = None
        if wanted[0][0] not in OF_CONNECTIONS:  # else it has just connected: see `waits`
            self._pause()
        raise undecided

    def _of_connections(self) -> tuple[What, ...]:
        return self._far.of_connections

    def _pause(self) -> None:
        self._client.throttle(Cause.ADMISSION)

    def _obey(self, decision: Decision) -> tuple[Slot, ...]:
        if isinstance(decision, NotAdmitted):
            raise NotAdmittedError(What(decision.what), decision.said, is_passing=decision.is_passing)
        return (_FarPlace(self._far, decision.number),) if decision.has_places else ()

    def _decided(self, wanted: tuple[Asked, ...], undecided: UndecidedError, decision: Decision) -> None:
        del self._open[decision.number]
        self._answer = wanted, decision
        try:
            undecided.again()
        finally:
            self._went_on(decision)

    def _went_on(self, decision: Decision) -> None:
        if self._answer is not None:  # something else was against it meanwhile
            self._answer = None
            self._far.leave(decision.number)
        if not self._open:
            self._client.unthrottle(Cause.ADMISSION)
