"""Connects sessions to the brokers that their clients want, within the handshake's time. One for all sessions."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from protocol.endpoint import Endpoint
from proxy.brokers.targets import TargetRefusedError, Targets
from proxy.config.model import Config
from proxy.session.events import CloseReason, SessionEnd

T = TypeVar("T")


class Deadlines(Generic[T]):
    """One timer for many that each have the same time for something; while nobody is under way, there is none.

    As all have the same time, who began first is due first; so to begin and to be ready is a look into a dictionary,
    where a timer of one's own is several objects, for each of thousands of connections that come at once.

    Args:
        seconds: So long each has.
        late: Told of each who is not ready then.
    """

    def __init__(self, seconds: float, late: Callable[[T], None]) -> None:
        self.seconds = seconds
        self._late = late
        self._due: OrderedDict[T, float] = OrderedDict()
        """A plain dictionary's first is found behind all gaps of those who were before it: with many, ever slower."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def begin(self, who: T) -> None:
        """From now on the time runs for one who is not under way already."""
        loop = asyncio.get_running_loop()
        self._due[who] = loop.time() + self.seconds
        if len(self._due) == 1:
            self._timer = loop.call_later(self.seconds, self._look)

    def end(self, who: T) -> None:
        """He is ready, or does not matter any more; perhaps he never began."""
        if self._due.pop(who, None) is not None and not self._due and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        try:
            while self._due:
                who, due = next(iter(self._due.items()))
                if due > loop.time():
                    break
                del self._due[who]
                self._late(who)
        finally:  # whatever is wrong with one, the others are told
            self._look_again(loop)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._due and self._timer is None:
            self._timer = loop.call_at(next(iter(self._due.values())), self._look)


_OVER: Final = object()


class ConnectAttempt:
    """Minimal Task replacement for one try at something that may fail: no name, context or registry; half the cost.

    Thousands are made when clients come at once. It begins with `start`. It awaits futures, and nothing that asks for
    its task.

    Args:
        coroutine: What is tried.
        ended: Told, perhaps before `start` returns, when it has ended by itself, with the error if it is one of
            `expected`.
        expected: How it may fail. Another error goes to the loop.
    """

    __slots__ = ("_ended", "_expected", "_steps", "_waits_for")

    def __init__(
        self,
        coroutine: Coroutine[Any, None, object],
        ended: Callable[["ConnectAttempt", Exception | None], None],
        expected: tuple[type[Exception], ...],
    ) -> None:
        self._steps = coroutine.__await__()
        self._ended = ended
        self._expected = expected
        self._waits_for: asyncio.Future[Any] | None = None

    def start(self) -> None:
        """Begin."""
        self._go_on(None)

    def cancel(self) -> None:
        """Leave it: the coroutine ends with `CancelledError`, soon, and nobody is told."""
        if self._waits_for is not None:
            self._waits_for.cancel()

    def _go_on(self, _done: object) -> None:
        self._waits_for = None
        try:
            waits_for = next(self._steps, _OVER)  # `send` ends with an exception, which costs as much as a step
        except asyncio.CancelledError:
            return
        except self._expected as error:
            self._ended(self, error)
            return
        if waits_for is _OVER:
            self._ended(self, None)
        else:
            self._wait(waits_for)

    def _wait(self, future: Any) -> None:
        """As `asyncio.Task` does: who awaits a future is handed it here, and has marked it."""
        future._asyncio_future_blocking = False  # noqa: SLF001 - the protocol between tasks and futures
        self._waits_for = future
        future.add_done_callback(self._go_on)


_EXPECTED = (TargetRefusedError, OSError)
"""How a dial may fail."""


class BrokerCaller(Protocol):
    """Who wants to be connected: a session."""

    def not_connected(self, end: SessionEnd) -> None:
        """There will be no connection, for this reason."""


class BrokerConnector:
    """Connects sessions to the brokers that their clients want, each within the handshake's time.

    Args:
        config: The configured broker, and the timeouts.
        targets: Which brokers are allowed.
    """

    def __init__(self, config: Config, targets: Targets) -> None:
        self._broker = config.broker
        self._targets = targets
        self._handshakes = Deadlines[BrokerCaller](config.handshake_timeout, self._not_greeted)
        self._answers = Deadlines[BrokerCaller](config.connect_timeout, self._not_answered)
        self._dials: dict[BrokerCaller, tuple[ConnectAttempt, Endpoint]] = {}

    @property
    def under_way(self) -> int:
        """Handshakes and dials that are not over."""
        return len(self._handshakes) + len(self._dials)

    def begin(self, caller: BrokerCaller) -> None:
        """A client is there: from now on the handshake's time runs, until `finish`."""
        self._handshakes.begin(caller)

    def finish(self, caller: BrokerCaller) -> None:
        """The broker accepted the client."""
        self._handshakes.end(caller)

    def connected(self, caller: BrokerCaller) -> None:
        """The broker is there: what is left of the dial ends by itself.

        Were it cancelled now, the loop would drop the connection and never say that it is gone.
        """
        if self._dials.pop(caller, None) is not None:
            self._answers.end(caller)

    def give_up(self, caller: BrokerCaller) -> None:
        """All is over, be it before, while or after the broker is dialled."""
        self._handshakes.end(caller)
        if caller in self._dials:
            attempt, _ = self._dials.pop(caller)
            self._answers.end(caller)
            attempt.cancel()

    def wanted(self, target: Endpoint | None) -> Endpoint:
        """The broker that a client gets: the one that it named, else the configured one."""
        return target or self._broker

    def dial(self, caller: BrokerCaller, wanted: Endpoint, protocol: asyncio.BaseProtocol) -> None:
        """Connect `protocol` to an IP address of the wanted broker, if that is allowed."""
        connect = asyncio.get_running_loop().create_connection
        coroutine: Coroutine[Any, Any, object]
        if self._targets.is_reachable(wanted):
            coroutine = connect(lambda: protocol, wanted.host, wanted.port)
        else:
            coroutine = self._by_name(wanted, partial(connect, lambda: protocol))
        attempt = ConnectAttempt(coroutine, partial(self._dialled, caller), _EXPECTED)
        self._dials[caller] = attempt, wanted
        self._answers.begin(caller)
        attempt.start()

    async def _by_name(self, wanted: Endpoint, connect: Callable[[str, int], Coroutine[Any, Any, object]]) -> None:
        """In a task: a timeout of one address among others needs one."""
        targets, patience = self._targets, self._answers.seconds
        await asyncio.get_running_loop().create_task(targets.connect(wanted, connect, patience))

    def _dialled(self, caller: BrokerCaller, attempt: ConnectAttempt, error: Exception | None) -> None:
        dial = self._dials.get(caller)
        if dial is None or dial[0] is not attempt:
            return
        _, wanted = self._dials.pop(caller)
        self._answers.end(caller)
        if error is None:
            return
        if isinstance(error, TargetRefusedError):
            caller.not_connected(SessionEnd(CloseReason.TARGET_REFUSED, str(error)))
        else:
            caller.not_connected(
                SessionEnd(CloseReason.BROKER_UNREACHABLE, f"{wanted}: {str(error) or self._too_long()}")
            )

    def _not_answered(self, caller: BrokerCaller) -> None:
        attempt, wanted = self._dials.pop(caller)
        attempt.cancel()
        caller.not_connected(SessionEnd(CloseReason.BROKER_UNREACHABLE, f"{wanted}: {self._too_long()}"))

    def _not_greeted(self, caller: BrokerCaller) -> None:
        end = SessionEnd(CloseReason.HANDSHAKE_TIMEOUT, f"not connected after {self._handshakes.seconds:g} s")
        caller.not_connected(end)

    def _too_long(self) -> str:
        return f"no connection within {self._answers.seconds:g} s"
