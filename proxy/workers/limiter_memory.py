"""What the supervisor's limiters take, told to its workers: these say whether a client may have more."""

from collections.abc import Callable

from proxy.workers.letters import Kept

STEP = 65_536
"""Bytes by which that of an address is another before the workers are told: they would be told of each limiter else."""


class LimiterMemory:
    """What limiters take, by the address that they are kept for, and who owes too much.

    Each worker counts its part as taken of its own `client_memory`, so that the parts add up to the whole.

    Args:
        workers: How many parts there are.
        owes_too_much: Says of an address whether it may open no more streams; see `limiter.registry.Limiters`.
        tell: Sends a letter to every worker.
    """

    def __init__(self, workers: int, owes_too_much: Callable[[str], bool], tell: Callable[[Kept], None]) -> None:
        self._workers = workers
        self._owes_too_much = owes_too_much
        self._tell = tell
        self._owing: set[str] = set()
        self._of: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def add(self, address: str, more: int) -> None:
        """So many bytes more (less: negative) are kept for clients at `address`."""
        size = self._of.get(address, 0) + more
        if size:
            self._of[address] = size
        else:
            self._of.pop(address, None)
        told, owes = self._told.get(address, 0), self._owes_too_much(address)
        if abs(size - told) < STEP and (size or not told) and owes is (address in self._owing):
            return
        self._told[address] = size
        if not size:
            del self._told[address]
        (self._owing.add if owes else self._owing.discard)(address)
        self._tell(self._letter(address))

    def letters(self) -> list[Kept]:
        """What a new worker is to be told."""
        return [self._letter(address) for address in {*self._told, *self._owing}]

    def _letter(self, address: str) -> Kept:
        return Kept(address, self._told.get(address, 0) // self._workers, address in self._owing)
