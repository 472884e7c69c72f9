"""How long a broker may do nothing, while the client may be what it waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Patience:
    """Ends what runs in it when the broker has had its turn for too long: to connect, to take a part, to answer.

    Args:
        seconds: For each.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Within this.

        Raises:
            TimeoutError: If it took too long.
        """
        try:
            async with asyncio.timeout(self._seconds) as self._timeout:
                yield
        finally:
            self._timeout = None

    def is_the_client_s(self, turn: bool) -> None:  # noqa: FBT001 - the two turns there are
        """Whose turn it is. A broker may answer before it has all of the body: then nobody waits here any more."""
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(None if turn else asyncio.get_running_loop().time() + self._seconds)
