"""Connects sessions to the brokers that their clients want, within the handshake's time. One for all sessions."""

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import structlog

from protocol.endpoint import TLS, Endpoint
from proxy.brokers.dialing import LEFT, BrokerTlsError, NoneAnswersError
from proxy.brokers.targets import TargetRefusedError, Targets
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.observe.connection import Connection
from proxy.observe.operator_log import ThrottledLog
from proxy.session.events import CloseReason, SessionEnd
from proxy.session.transport import PeerTransport, TransportContext
from proxy.tls.certificates import Certificates
from proxy.tls.transport import TlsBuffers, TlsFailure, TlsTransport

T = TypeVar("T")


_AT_ONCE: Final = 50
"""Most entries whose time ends in one turn of the loop: thousands may have begun at once."""


class Deadlines(Generic[T]):
    """Deadlines of many entries, each the same time after its beginning, with one timer; without entries there is none.

    The entry that began first is due first. So beginning and ending an entry are one look into a dictionary each. A
    timer for each entry would be several objects for each of thousands of connections that come at once.

    Args:
        seconds: The time that each entry has.
        late: Called with each entry that has not ended in its time.
    """

    def __init__(self, seconds: float, late: Callable[[T], None]) -> None:
        self.seconds = seconds
        self._late = late
        self._due: OrderedDict[T, float] = OrderedDict()
        """Ordered: to find its first key, a plain dictionary passes over the gaps of all keys removed before."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, entry: object) -> bool:
        return entry in self._due

    def begin(self, entry: T) -> None:
        """Start the time of an entry that is not under way."""
        loop = asyncio.get_running_loop()
        self._due[entry] = loop.time() + self.seconds
        if len(self._due) == 1:
            self._timer = loop.call_later(self.seconds, self._look)

    def end(self, entry: T) -> None:
        """Remove an entry, if it is there: it is ready, or does not matter any more."""
        if self._due.pop(entry, None) is not None and not self._due and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        try:
            for _ in range(min(_AT_ONCE, len(self._due))):
                entry, due = next(iter(self._due.items()))
                if due > loop.time():
                    break
                del self._due[entry]
                self._late(entry)
        finally:  # the deadlines of others end, even if one call fails
            if self._due and self._timer is None:
                self._timer = loop.call_at(next(iter(self._due.values())), self._look)


_OVER: Final = object()


class ConnectAttempt:
    """Minimal Task replacement for one try at something that may fail: no name, context or registry; half the cost.

    Thousands are made when clients come at once. It begins with `start`. It awaits futures, and nothing that asks for
    its task.

    Args:
        coroutine: The work to try.
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
        """Cancel the coroutine, which soon ends with `CancelledError`; `ended` is not called."""
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
        """Wait for a future that the coroutine awaits, as `asyncio.Task` does: awaiting has marked and yielded it."""
        future._asyncio_future_blocking = False  # noqa: SLF001 - the protocol between tasks and futures
        self._waits_for = future
        future.add_done_callback(self._go_on)


_EXPECTED = (TargetRefusedError, OSError)
"""The exceptions of a dial that has failed."""
PASSED_OVER_S: Final = 10.0
"""Seconds in which a configured broker that did not answer is dialled last."""


class BrokerRotation:
    """The configured brokers, each in turn; brokers that did not answer a while ago come last.

    Args:
        targets: Has the brokers that are in force.
    """

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._next = 0
        self._passed_over: dict[Endpoint, float] = {}
        """The time until which a broker is dialled last."""

    def order(self, now: float) -> list[Endpoint]:
        """Return all brokers in the order in which a client tries them at this time."""
        brokers = self._targets.brokers
        first = self._next % len(brokers)
        self._next = first + 1
        in_turn = [*brokers[first:], *brokers[:first]]
        answering = [broker for broker in in_turn if self._passed_over.get(broker, now) <= now]
        if answering and answering[0] in self._passed_over:
            self.failed(answering[0], now)  # until it answers: one client's time is enough to try it
        return [*answering, *(broker for broker in in_turn if broker not in answering)]

    def failed(self, broker: Endpoint, now: float) -> None:
        """Have a broker dialled last: it did not answer, or its TLS failed."""
        self._passed_over[broker] = now + PASSED_OVER_S

    def answered(self, broker: Endpoint) -> None:
        """Give a broker its turn again: it accepted a client."""
        self._passed_over.pop(broker, None)


ALERT_S: Final = 1.0
"""Seconds that a broker has to take the alert that names the failure of its TLS."""


class BrokerHandshake:
    """The TLS handshake with a broker, from the new connection until the session has it.

    The loop sees a protocol. `TlsTransport` takes its place at once, and calls it at the end of the handshake.

    Args:
        peer: Gets the connection when the handshake is done.
        context: The TLS context for brokers.
        buffers: The memory that all TLS connections share.
        server_name: The name that the broker is asked for, and that its certificate must have.
        counters: Count TLS that failed.
    """

    def __init__(
        self,
        peer: PeerTransport,
        context: ssl.SSLContext,
        buffers: TlsBuffers,
        server_name: str,
        counters: Counters,
    ) -> None:
        self._peer = peer
        self._counters = counters
        self._context = context
        self._buffers = buffers
        self._server_name = server_name
        self._tls: TlsTransport | None = None
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the handshake is; else it has a `BrokerTlsError`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop when there is a connection."""
        raw = cast("asyncio.Transport", transport)
        self._tls = TlsTransport(
            self._peer, self, raw, self._context, self._buffers, self._server_name, is_server=False
        )

    def data_received(self, _data: bytes) -> None:
        """Fail: the loop looks this name up, and never calls it, as TLS takes this protocol's place."""
        raise NotImplementedError

    def secured(self, tls: TlsTransport) -> None:
        """Called by TLS when the handshake is done: from now on it calls the peer."""
        if not self.outcome.done():
            self.outcome.set_result(None)
        self._peer.connection_made(cast("asyncio.BaseTransport", tls))

    def tls_failed(self, tls: TlsTransport, failure: TlsFailure, detail: str) -> None:
        """Called by TLS when it failed."""
        self._fail(failure, detail)
        tls.close()
        asyncio.get_running_loop().call_later(ALERT_S, tls.abort)

    def eof_received(self) -> bool:
        """Called by TLS when the broker ends the connection without a word."""
        self._fail(TlsFailure.LEFT, LEFT)
        self.abort()
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        """Called by TLS when the connection is gone."""
        self._fail(TlsFailure.LEFT, LEFT)

    def abort(self) -> None:
        """Abort the connection, at any stage of the handshake."""
        if self.outcome.done() and not self.outcome.cancelled():
            self.outcome.exception()  # else the loop would log an exception that was never retrieved
        if self._tls is not None:
            self._tls.abort()

    def _fail(self, failure: TlsFailure, detail: str) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(BrokerTlsError(failure, detail, self._counters))


_OF_ALL: Final = 0.9
"""The part of the time for a connection in which several brokers are tried: the rest is left to report each failure."""


def _none_answers(tried: dict[Endpoint, str]) -> SessionEnd:
    problems = "; ".join(f"{broker}: {problem}" for broker, problem in tried.items())
    return SessionEnd(CloseReason.BROKER_UNREACHABLE, problems)


class BrokerCaller(Protocol):
    """A session that needs a connection to a broker.

    Attributes:
        connection: Gets the broker's address.
    """

    connection: Connection

    def refuse_client(self, end: SessionEnd) -> None:
        """Tell the client why there is no connection to a broker, and end the session."""


class BrokerConnector:
    """Connects sessions to the brokers that their clients want, each within the handshake's time.

    Args:
        config: The scheme of brokers, and the timeouts.
        targets: The configured brokers, and the allow-list.
        tls: The contexts in force.
        shared: The objects that all connections share.
        counters: Count TLS that failed, and brokers that were passed over.

    Attributes:
        scheme: How all brokers are reached: `pulsar` or `pulsar+ssl`.
    """

    def __init__(
        self, config: Config, targets: Targets, tls: Certificates, shared: TransportContext, counters: Counters
    ) -> None:
        self.scheme = config.broker[0].scheme
        self._is_tls = self.scheme == TLS
        self.rotation = BrokerRotation(targets)
        self._targets = targets
        self._tls = tls
        self._shared = shared
        self._counters = counters
        self._handshakes = Deadlines[BrokerCaller](config.handshake_timeout, self._not_greeted)
        self._answers = Deadlines[BrokerCaller](config.connect_timeout, self._not_answered)
        self._dials: dict[BrokerCaller, ConnectAttempt] = {}
        self._tried: dict[BrokerCaller, dict[Endpoint, str]] = {}
        """For each caller that may have any configured broker: the brokers tried, and why each one failed. The last one
        is being tried, or is the caller's. Entries go when the broker has accepted the client."""
        self._lines = ThrottledLog(time.monotonic_ns)

    @property
    def under_way(self) -> int:
        """Handshakes and dials that are not over."""
        return len(self._handshakes) + len(self._dials) + len(self._tried)

    def begin(self, caller: BrokerCaller) -> None:
        """Start the handshake's time of a client that is there; it runs until `finish`."""
        self._handshakes.begin(caller)

    def finish(self, caller: BrokerCaller) -> None:
        """Stop the handshake's time: the broker accepted the client."""
        self._handshakes.end(caller)
        tried = self._tried.pop(caller, None)
        if tried:
            self.rotation.answered(next(reversed(tried)))

    def connected(self, caller: BrokerCaller) -> None:
        """Forget the dial of a broker that is connected: the rest of its coroutine ends by itself.

        If it were cancelled now, the loop would drop the connection and never report its end.
        """
        if self._dials.pop(caller, None) is not None:
            self._answers.end(caller)

    def give_up(self, caller: BrokerCaller) -> None:
        """Drop the caller's handshake and dial, at any stage: its session ends."""
        self._handshakes.end(caller)
        self._tried.pop(caller, None)
        if caller in self._dials:
            attempt = self._dials.pop(caller)
            self._answers.end(caller)
            attempt.cancel()

    def is_under_way(self, caller: BrokerCaller) -> bool:
        """Return whether the broker has not accepted the client yet."""
        return caller in self._handshakes

    def refused(self, caller: BrokerCaller, error: BrokerTlsError) -> SessionEnd:
        """Note that TLS failed with a broker that is connected; return the caller's end, for a caller that ends.

        By TLS 1.3 a broker refuses Sluice's certificate after the handshake, when CONNECT may be on its way already.
        """
        tried = self._tried.get(caller)
        if tried is None:
            return self._unreachable(caller, str(error))
        self._pass_over(next(reversed(tried)), str(error), tried)
        return _none_answers(tried)

    def has_another(self, caller: BrokerCaller) -> bool:
        """Return whether there is a broker that was not tried yet, and that `dial` would connect the caller to."""
        tried = self._tried.get(caller)
        return tried is not None and any(broker not in tried for broker in self._targets.brokers)

    def dial(self, caller: BrokerCaller, target: Endpoint | None, peer: PeerTransport) -> None:
        """Connect `peer` to the broker that the client named, if that is allowed; without a name, to a configured one.

        The scheme is that of all brokers, whatever the client wrote.
        """
        coroutine: Coroutine[Any, Any, object]
        if target is None and (len(self._targets.brokers) > 1 or caller in self._tried):
            coroutine = self._in_a_task(self._in_turn(caller, peer))
        else:
            broker = target or self._targets.brokers[0]
            if broker.scheme != self.scheme:
                broker = broker._replace(scheme=self.scheme)
            caller.connection.broker = broker.address
            if self._targets.is_reachable(broker):
                coroutine = self._connect(peer, broker, broker.host, broker.port)
            else:
                connect = partial(self._connect, peer, broker)
                coroutine = self._in_a_task(self._targets.connect(broker, connect, self._answers.seconds))
        attempt = ConnectAttempt(coroutine, partial(self._dialled, caller), _EXPECTED)
        self._dials[caller] = attempt
        self._answers.begin(caller)
        attempt.start()

    def _connect(self, peer: PeerTransport, broker: Endpoint, host: str, port: int) -> Coroutine[Any, Any, object]:
        if self._is_tls:
            return self._secure(peer, broker, host, port)
        return asyncio.get_running_loop().create_connection(lambda: peer.protocol, host, port)

    async def _secure(self, peer: PeerTransport, broker: Endpoint, host: str, port: int) -> None:
        """Connect, and do the TLS handshake before `peer` has the connection."""
        name, buffers = self._tls.server_name(broker), self._shared.tls_buffers()
        handshake = BrokerHandshake(peer, self._tls.broker(), buffers, name, self._counters)
        protocol = cast("asyncio.BaseProtocol", handshake)
        try:
            await asyncio.get_running_loop().create_connection(lambda: protocol, host, port)
            await handshake.outcome
        except BrokerTlsError:
            raise
        except BaseException:
            handshake.abort()
            raise

    async def _in_a_task(self, dial: Coroutine[Any, Any, object]) -> None:
        """Await a dial in a task of its own: timeouts need one."""
        await asyncio.get_running_loop().create_task(dial)

    async def _in_turn(self, caller: BrokerCaller, peer: PeerTransport) -> None:
        """Connect to the first of the configured brokers that answers; each has its share of the time.

        Those that were tried for this caller before are not tried once more.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + _OF_ALL * self._answers.seconds
        tried = self._tried.setdefault(caller, {})
        brokers = [each for each in self.rotation.order(clock()) if each not in tried]
        for number, broker in enumerate(brokers):
            caller.connection.broker = broker.address
            tried[broker] = ""
            share = (deadline - clock()) / (len(brokers) - number)
            dial = asyncio.get_running_loop().create_task(
                self._targets.connect(broker, partial(self._connect, peer, broker), share)
            )
            try:
                await self._answer(dial, share, peer)
            except _EXPECTED as error:
                self._pass_over(broker, str(error), tried)
            else:
                return
        raise NoneAnswersError(_none_answers(tried).detail)

    def _pass_over(self, broker: Endpoint, why: str, tried: dict[Endpoint, str]) -> None:
        tried[broker] = why
        self.rotation.failed(broker, asyncio.get_running_loop().time())
        self._counters.brokers_passed_over[str(broker)] += 1
        times = self._lines.due("passed over", str(broker))
        if times:
            structlog.get_logger().warning("broker passed over", broker=str(broker), problem=why, connections=times)

    async def _answer(self, dial: "asyncio.Task[object]", share: float, peer: PeerTransport) -> None:
        """Await a dial for its share of the time; one that has made its connection is not called back."""
        try:
            await asyncio.wait([dial], timeout=share)
            if dial.done() or peer.is_connected:
                await dial
                return
        finally:
            dial.cancel()
        raise OSError(f"no connection within {share:g} s")

    def _dialled(self, caller: BrokerCaller, attempt: ConnectAttempt, error: Exception | None) -> None:
        if self._dials.get(caller) is not attempt:
            return
        del self._dials[caller]
        self._answers.end(caller)
        if error is None:
            return
        if isinstance(error, TargetRefusedError):
            caller.refuse_client(SessionEnd(CloseReason.TARGET_REFUSED, str(error)))
        elif isinstance(error, NoneAnswersError):
            caller.refuse_client(SessionEnd(CloseReason.BROKER_UNREACHABLE, str(error)))
        else:
            caller.refuse_client(self._unreachable(caller, str(error)))

    def _not_answered(self, caller: BrokerCaller) -> None:
        self._dials.pop(caller).cancel()
        caller.refuse_client(self._unreachable(caller, ""))

    def _unreachable(self, caller: BrokerCaller, why: str) -> SessionEnd:
        why = why or f"no connection within {self._answers.seconds:g} s"
        return SessionEnd(CloseReason.BROKER_UNREACHABLE, f"{self.scheme}://{caller.connection.broker}: {why}")

    def _not_greeted(self, caller: BrokerCaller) -> None:
        end = SessionEnd(CloseReason.HANDSHAKE_TIMEOUT, f"not connected after {self._handshakes.seconds:g} s")
        caller.refuse_client(end)
