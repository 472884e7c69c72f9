"""A real broker with peers of its own before it, for rows that official clients drive."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from loadgen.bench.errors import BenchError
from loadgen.bench.peers.plan import Peer, Plan, running
from loadgen.real.jars import RealPulsarError
from loadgen.real.standalone import StandaloneBroker


class RealBroker:
    """Starts when the first peer is asked for, and ends with all of them at the end of the block.

    Args:
        folder: For everybody's files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._port: int | None = None
        self._peers: dict[str, Peer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def peer(self, plan: Plan) -> Peer:
        """The peer that has the real broker behind it; it goes on running, for a JVM is slow at first.

        Raises:
            BenchError: If the broker or the peer cannot be had.
        """
        if plan.name not in self._peers:
            self._peers[plan.name] = self._stack.enter_context(running(plan, self._folder, self._broker()))
        return self._peers[plan.name]

    def _broker(self) -> int:
        if self._port is None:
            try:
                broker = self._stack.enter_context(StandaloneBroker(self._folder / "broker"))
            except RealPulsarError as error:
                raise BenchError(f"no real broker: {str(error).splitlines()[0]}") from error
            self._port = int(broker.service_url.rpartition(":")[2])
        return self._port
