"""Memory that came free after a crowd: given back to the system, in a while.

The C library keeps all that lies below something that is still used, and something always is. So a proxy whose
readers stood still would take up, for ever after, as much as it once kept for all of them at a time.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.runtime import give_back_memory

WHILE_S: Final = 10.0
"""From when some came free: until then much more may, or it is used again.

To give it back takes 3 ms for 100 MiB in pieces of 64 KiB, 10 ms in pieces of 5 KiB, and nobody is served meanwhile:
another thread would be none the better for it, as who wants memory waits for it then. With nothing to give, 0.5 ms.
"""


class Heap:
    """One of a process. No timer runs while nothing comes free.

    Args:
        give_back: Gives back to the system what is free.
    """

    def __init__(self, give_back: Callable[[], None] = give_back_memory) -> None:
        self._give_back = give_back
        self._is_asked = False

    def freed(self) -> None:
        """Much may have come free just now: of a reader that stood still, of what was held, of a session that ended.

        To be called in the loop.
        """
        if not self._is_asked:
            asyncio.get_running_loop().call_later(WHILE_S, self._go)
            self._is_asked = True

    def _go(self) -> None:
        self._is_asked = False
        self._give_back()
