"""An event loop whose time passes only when a test says so, and whose network is a table of fake transports.

It is asyncio's own loop (timers, tasks, timeouts, call_soon order) without a selector: nothing sleeps, nothing
listens, and a test is at rest when nothing is left to run.
"""

import asyncio
import concurrent.futures
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from tests.manual_clock import ManualClock
from tests.proxy.fake_transport import AnyProtocol, FakeTransport


class _NoSelector:
    def select(self, _timeout: float | None) -> list[Any]:
        return []


@dataclass(eq=False)
class Dial:
    """One attempt to connect: `address` as the proxy asked for it; the test accepts or fails it."""

    address: tuple[str, int]
    protocol: AnyProtocol
    transport: FakeTransport
    outcome: "asyncio.Future[None]"

    def accept(self) -> FakeTransport:
        self.transport.connect(self.protocol)
        self.outcome.set_result(None)
        return self.transport

    def fail(self, error: OSError) -> None:
        self.outcome.set_exception(error)


class ManualLoop(asyncio.BaseEventLoop):
    """Runs what is due, never waits.

    Attributes:
        answers: Called with each attempt to connect; accepts, fails or keeps it.
        names: What host names resolve to. Addresses resolve to themselves.
        transports: What connections are made with.
        turned: Called after each turn.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.answers: Callable[[Dial], None] = lambda _dial: None
        self.names: dict[str, list[str]] = {}
        self.transports: type[FakeTransport] = FakeTransport
        self.turned: Callable[[], None] = lambda: None
        self.trouble: list[str] = []
        self._selector = _NoSelector()
        self.set_exception_handler(lambda _loop, context: self.trouble.append(_told(context)))

    def time(self) -> float:
        return self.clock.now / 1e9

    def run(self, act: Callable[..., Any], *args: Any) -> Any:
        """Call `act` inside the loop, then let everything run that follows from it; gives back what it returned."""
        outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def call() -> None:
            try:
                outcome.set_result(act(*args))
            except Exception as error:  # noqa: BLE001 - it is the caller's
                outcome.set_exception(error)

        self.call_soon(call)
        self.settle()
        return outcome.result(0)

    def settle(self) -> None:
        """Run until nothing is left to do at this instant."""
        while self.__dict__["_ready"] or self._is_due():
            self.stop()
            self.run_forever()
            self.turned()

    def advance(self, seconds: float) -> None:
        """Let time pass; timers fire one after the other, each at its own instant."""
        target = self.clock.now + round(seconds * 1e9)
        self.settle()
        while (at := self._next_timer()) is not None and at <= target:
            self.clock.now = max(self.clock.now, at)
            self.settle()
        self.clock.now = target
        self.settle()

    @property
    def timers(self) -> list[str]:
        """What is still to fire, for people and for the assertion that nothing is."""
        return [cast("Any", timer)._callback.__qualname__ for timer in self._pending_timers()]

    async def create_connection(  # type: ignore[override]  # only what the proxy uses
        self, factory: Any, host: Any = None, port: Any = None, **_more: Any
    ) -> Any:
        protocol = factory()
        transport = self.transports(self, (host, port))
        dial = Dial((host, port), protocol, transport, self.create_future())
        self.answers(dial)
        try:
            await dial.outcome
        except asyncio.CancelledError:
            transport.close()
            raise
        return transport, protocol

    async def getaddrinfo(self, host: Any, port: Any, **_more: Any) -> Any:
        host.encode("idna")  # as the real one does, with its UnicodeError
        if host[0].isdigit() or ":" in host:
            addresses = [host]
        elif host in self.names:
            addresses = self.names[host]
        else:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    def _is_due(self) -> bool:
        at = self._next_timer()
        return at is not None and at <= self.clock.now

    def _next_timer(self) -> int | None:
        due = [timer.when() for timer in self._pending_timers()]
        return math.ceil(min(due) * 1e9) if due else None

    def _pending_timers(self) -> list[asyncio.TimerHandle]:
        scheduled: list[asyncio.TimerHandle] = cast("Any", self)._scheduled  # asyncio's own heap, unknown to type stubs
        return [timer for timer in scheduled if not timer.cancelled()]

    def _process_events(self, _events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _told(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"
