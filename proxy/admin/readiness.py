"""`/readyz`: the proxy accepts clients, and the broker answers."""

import asyncio

from protocol.commands import encode
from protocol.pulsar_pb2 import CommandConnect
from proxy.brokers.targets import TargetRefusedError
from proxy.sessions.engine import Engine

_PATIENCE_S = 3.0
_CONNECT = encode(CommandConnect(client_version="Sluice readiness", protocol_version=20))


class Readiness:
    """Asks the broker for any answer to a CONNECT; an authentication error is one, too."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_accepting = False

    async def problem(self) -> str | None:
        """What stands in the way, or None."""
        if not self.is_accepting:
            return "not accepting connections"
        broker = self._engine.config.broker
        try:
            answered = await asyncio.wait_for(self._broker_answers(), _PATIENCE_S)
        except (OSError, TimeoutError, TargetRefusedError) as error:
            return f"broker {broker} does not answer: {str(error) or 'time over'}"
        return None if answered else f"broker {broker} closed the connection without an answer"

    async def _broker_answers(self) -> bool:
        broker, connect = self._engine.config.broker, asyncio.open_connection
        reader, writer = await self._engine.targets.connect(broker, connect, _PATIENCE_S)
        try:
            writer.write(_CONNECT)
            return bool(await reader.read(1))
        finally:
            writer.close()
