"""Clients that do not take what is sent to them: each look finds who took nothing since the one before.

A look comes two seconds after something was sent, and again as long as anybody has something left: nothing wakes a
process in which nothing is sent.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

LOOK_S: Final = 2.0
_AT_ONCE: Final = 500
"""Clients that are looked at in one turn of the loop."""


class Sending(Protocol):
    """What sends to one client (`sender.Sender`)."""

    def rest(self) -> None:
        """All that was sent is taken: it is watched again when more is."""

    def unsent(self) -> int:
        """Bytes that were sent and that the kernel has not taken."""

    def taken(self) -> int:
        """Bytes that it has taken, in all."""

    def tell(self, unsent: int, seconds: float) -> None:
        """For so long the client has taken nothing of so many bytes; of none, if it took something."""


class Unsent:
    """One of a process."""

    def __init__(self) -> None:
        self._sent_lately: deque[Sending] = deque()
        self._waiting: dict[Sending, tuple[int, float]] = {}
        """Who has something left: what it had taken when it last took something, and when that was seen."""
        self._is_armed = False

    @property
    def size(self) -> int:
        """Bytes that were sent and that are not taken yet, of all who had some left at the last look."""
        return sum(sending.unsent() for sending in self._waiting)

    def watch(self, sending: Sending) -> None:
        """It sends something, for the first time since it was at rest."""
        self._sent_lately.append(sending)
        self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        lately, self._sent_lately = self._sent_lately, deque()
        self._look_at(deque([*self._waiting, *lately]))

    def _look_at(self, those: "deque[Sending]") -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for _ in range(min(len(those), _AT_ONCE)):
            self._look_at_one(those.popleft(), now)
        if those:
            loop.call_soon(self._look_at, those)
            return
        self._is_armed = False
        if self._waiting or self._sent_lately:
            self._arm()

    def _look_at_one(self, sending: Sending, now: float) -> None:
        unsent, taken = sending.unsent(), sending.taken()
        before = self._waiting.get(sending)
        if unsent == 0:
            self._waiting.pop(sending, None)
            sending.rest()
        elif before is None or taken > before[0]:
            self._waiting[sending] = taken, now
        else:
            sending.tell(unsent, now - before[1])
            return
        if before is not None:
            sending.tell(0, 0.0)
