"""From a client's connection to the broker's: where it may go, and how long it may take."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from proxy.brokers.targets import TargetRefusedError, Targets
from proxy.config.model import Config
from proxy.sessions.ends import End, EndCause


class Dialling:
    """Connects one session to the broker that its client wants, within the handshake's time.

    Args:
        config: The configured broker, and the timeouts.
        targets: Which brokers are allowed.
        failed: Called with the reason if there will be no connection, or if the handshake takes too long.
    """

    __slots__ = ("_config", "_failed", "_targets", "_timer")

    def __init__(self, config: Config, targets: Targets, failed: Callable[[End], None]) -> None:
        self._config = config
        self._targets = targets
        self._failed = failed
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The client is there: from now on the handshake's time runs, until `finish`."""
        self._timer = asyncio.get_running_loop().call_later(self._config.handshake_timeout, self._is_late)

    def finish(self) -> None:
        """The broker accepted the client, or all is over."""
        if self._timer is not None:
            self._timer.cancel()

    def wanted(self, target: str | None) -> str:
        """The broker that a client gets: the one that it named, else the configured one."""
        return target or self._config.broker

    async def dial(self, wanted: str, protocol: asyncio.BaseProtocol) -> None:
        """Connect `protocol` to an address of the wanted broker, if that is allowed."""
        loop, dialling = asyncio.get_running_loop(), asyncio.current_task()
        assert dialling is not None, "a coroutine that dials runs in a task"
        # A timer alone: asyncio.timeout() would make more objects, and each connection is dialled.
        timer = loop.call_later(self._config.connect_timeout, self._give_up, dialling, wanted)
        try:
            await self._targets.connect(wanted, partial(loop.create_connection, lambda: protocol))
        except TargetRefusedError as error:
            self._failed(End(EndCause.TARGET_REFUSED, str(error)))
        except OSError as error:
            self._failed(End(EndCause.BROKER_UNREACHABLE, f"{wanted}: {str(error) or self._too_long()}"))
        finally:
            timer.cancel()

    def _give_up(self, dialling: "asyncio.Task[Any]", wanted: str) -> None:
        dialling.cancel()
        self._failed(End(EndCause.BROKER_UNREACHABLE, f"{wanted}: {self._too_long()}"))

    def _too_long(self) -> str:
        return f"no connection within {self._config.connect_timeout:g} s"

    def _is_late(self) -> None:
        self._failed(End(EndCause.HANDSHAKE_TIMEOUT, f"not connected after {self._config.handshake_timeout:g} s"))
