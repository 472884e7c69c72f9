"""From clients' connections to the brokers': where they may go, and how long it may take. One for all sessions."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from proxy.brokers.targets import TargetRefusedError, Targets
from proxy.config.model import Config
from proxy.sessions.attempt import Attempt
from proxy.sessions.deadlines import Deadlines
from proxy.sessions.ends import End, EndCause

_EXPECTED = (TargetRefusedError, OSError)
"""How a dial may fail."""


class Caller(Protocol):
    """Who wants to be connected: a session."""

    def not_connected(self, end: End) -> None:
        """There will be no connection, for this reason."""


class Dialler:
    """Connects sessions to the brokers that their clients want, each within the handshake's time.

    Args:
        config: The configured broker, and the timeouts.
        targets: Which brokers are allowed.
    """

    def __init__(self, config: Config, targets: Targets) -> None:
        self._broker = config.broker
        self._targets = targets
        self._handshakes = Deadlines[Caller](config.handshake_timeout, self._not_greeted)
        self._answers = Deadlines[Caller](config.connect_timeout, self._not_answered)
        self._dials: dict[Caller, tuple[Attempt, str]] = {}

    @property
    def under_way(self) -> int:
        """Handshakes and dials that are not over."""
        return len(self._handshakes) + len(self._dials)

    def begin(self, caller: Caller) -> None:
        """A client is there: from now on the handshake's time runs, until `finish`."""
        self._handshakes.begin(caller)

    def finish(self, caller: Caller) -> None:
        """The broker accepted the client."""
        self._handshakes.end(caller)

    def connected(self, caller: Caller) -> None:
        """The broker is there: what is left of the dial ends by itself.

        Were it cancelled now, the loop would drop the connection and never say that it is gone.
        """
        if self._dials.pop(caller, None) is not None:
            self._answers.end(caller)

    def give_up(self, caller: Caller) -> None:
        """All is over, be it before, while or after the broker is dialled."""
        self._handshakes.end(caller)
        if caller in self._dials:
            attempt, _ = self._dials.pop(caller)
            self._answers.end(caller)
            attempt.cancel()

    def wanted(self, target: str | None) -> str:
        """The broker that a client gets: the one that it named, else the configured one."""
        return target or self._broker

    def dial(self, caller: Caller, wanted: str, protocol: asyncio.BaseProtocol) -> None:
        """Connect `protocol` to an address of the wanted broker, if that is allowed."""
        connect, address = asyncio.get_running_loop().create_connection, self._targets.at_once(wanted)
        coroutine: Coroutine[Any, Any, object]
        if address is None:
            coroutine = self._by_name(wanted, partial(connect, lambda: protocol))
        else:
            host, port = address
            coroutine = connect(lambda: protocol, host, port)
        attempt = Attempt(coroutine, partial(self._dialled, caller), _EXPECTED)
        self._dials[caller] = attempt, wanted
        self._answers.begin(caller)
        attempt.start()

    async def _by_name(self, wanted: str, connect: Callable[[str, int], Coroutine[Any, Any, object]]) -> None:
        """In a task: a timeout of one address among others needs one."""
        targets, patience = self._targets, self._answers.seconds
        await asyncio.get_running_loop().create_task(targets.connect(wanted, connect, patience))

    def _dialled(self, caller: Caller, attempt: Attempt, error: Exception | None) -> None:
        if self._dials.get(caller, (None, ""))[0] is not attempt:
            return
        _, wanted = self._dials.pop(caller)
        self._answers.end(caller)
        if error is None:
            return
        if isinstance(error, TargetRefusedError):
            caller.not_connected(End(EndCause.TARGET_REFUSED, str(error)))
        else:
            caller.not_connected(End(EndCause.BROKER_UNREACHABLE, f"{wanted}: {str(error) or self._too_long()}"))

    def _not_answered(self, caller: Caller) -> None:
        attempt, wanted = self._dials.pop(caller)
        attempt.cancel()
        caller.not_connected(End(EndCause.BROKER_UNREACHABLE, f"{wanted}: {self._too_long()}"))

    def _not_greeted(self, caller: Caller) -> None:
        end = End(EndCause.HANDSHAKE_TIMEOUT, f"not connected after {self._handshakes.seconds:g} s")
        caller.not_connected(end)

    def _too_long(self) -> str:
        return f"no connection within {self._answers.seconds:g} s"
