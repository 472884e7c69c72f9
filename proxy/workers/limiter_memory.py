"""What the supervisor's limiters take, told to its workers: these say whether a client may have more."""

from collections.abc import Callable

from proxy.workers.letters import Kept

STEP = 65_536
"""Bytes by which that of an address is another before the workers are told: they would be told of each limiter else."""


class LimiterMemory:
    """What limiters take, by the address that they are kept for.

    Each worker counts its part as taken of its own `client_memory`, so that the parts add up to the whole.

    Args:
        workers: How many parts there are.
        tell: Sends a letter to every worker.
    """

    def __init__(self, workers: int, tell: Callable[[Kept], None]) -> None:
        self._workers = workers
        self._tell = tell
        self._of: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def add(self, address: str, more: int) -> None:
        """So many bytes more (less: negative) are kept for clients at `address`."""
        size = self._of.get(address, 0) + more
        if size:
            self._of[address] = size
        else:
            self._of.pop(address, None)
        told = self._told.get(address, 0)
        if abs(size - told) >= STEP or (told and not size):
            if size:
                self._told[address] = size
            else:
                del self._told[address]
            self._tell(Kept(address, size // self._workers))

    def letters(self) -> list[Kept]:
        """What a new worker is to be told."""
        return [Kept(address, size // self._workers) for address, size in self._told.items()]
