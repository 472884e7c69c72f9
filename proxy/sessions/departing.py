"""A client that will send no more: what may pass of what it sent goes on, the rest is dropped, answers may come."""

import asyncio
from collections.abc import Callable
from functools import partial

from proxy.runtime import Tasks
from proxy.sessions.ends import End, EndCause
from proxy.sessions.leg import Leg
from proxy.sessions.streams import Streams


class Departing:
    """Ends a session in order whose client has left.

    Args:
        streams: The client's.
        broker: Told that no more comes.
        tasks: Where somebody waits for the broker's last answers.
        patience: Seconds that this may take.
        finish: Ends the session.

    Attributes:
        end: Why the session ends, whichever connection goes first from now on.
    """

    __slots__ = ("_broker", "_finish", "_patience", "_streams", "_tasks", "end")

    def __init__(
        self, streams: Streams, broker: Leg, tasks: Tasks, patience: float, finish: Callable[[End], None]
    ) -> None:
        self.end: End | None = None
        self._streams = streams
        self._broker = broker
        self._tasks = tasks
        self._patience = patience
        self._finish = finish

    def half_closed(self) -> None:
        """It may still read."""
        self._begin(End(EndCause.CLIENT_CLOSED), self._tell_broker)

    def lost(self, end: End) -> None:
        """Its connection is gone."""
        self._begin(end, partial(self._finish, end))

    def _begin(self, end: End, then: Callable[[], None]) -> None:
        if self.end is None:
            self.end = end
            self._tasks.start(self._linger(end), "linger")
        self._streams.when_decided(then)

    def _tell_broker(self) -> None:
        self._streams.close_all()
        self._broker.write_eof()

    async def _linger(self, end: End) -> None:
        await asyncio.sleep(self._patience)
        self._finish(end)
