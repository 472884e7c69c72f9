"""The watchers of topic lists that a broker has of one connection.

    WATCH_TOPIC_LIST ──▶ opening ──WATCH_TOPIC_LIST_SUCCESS──▶ open ──WATCH_TOPIC_LIST_CLOSE──▶ (gone)
                            └──ERROR──▶ (gone)

The broker keeps a list of topics for each, and sends what changes. It registers one only when it has authorized it, and
may handle a CLOSE that came behind before that: so one that is opening is gone by no CLOSE. WATCH_TOPIC_LIST with an id
that is open makes no second one; refused, it leaves the first as it is.

Source: org.apache.pulsar.broker.service.TopicListService
"""

from protocol.pulsar_pb2 import ServiceNotReady, TooManyRequests
from proxy.budgets import Claim
from proxy.refusals import TOO_MUCH_KEPT, RefusedError

MOST_WATCHERS = 1_000
"""Of one connection."""
WATCHER_MEMORY = 256
"""Bytes that one takes."""


class Watchers:
    """Those that are open or opening.

    Args:
        memory: Counts what is kept of them.
    """

    __slots__ = ("_is_open", "_memory")

    def __init__(self, memory: Claim) -> None:
        self._memory = memory
        self._is_open: dict[int, bool] = {}

    def begin(self, watcher_id: int) -> bool:
        """One is about to be asked of the broker. Whether its id is a new one.

        Raises:
            RefusedError: If there are too many, too much is kept for this client, or the id is being opened.
        """
        is_open = self._is_open.get(watcher_id)
        if is_open is False:
            raise RefusedError(ServiceNotReady, f"watcher id {watcher_id} of this connection is being opened")
        if is_open is None:
            if len(self._is_open) >= MOST_WATCHERS:
                raise RefusedError(
                    TooManyRequests, f"this connection has {MOST_WATCHERS} watchers, the most that one may have"
                )
            if not self._memory.take(WATCHER_MEMORY):
                raise RefusedError(TooManyRequests, TOO_MUCH_KEPT)
        self._is_open[watcher_id] = False
        return is_open is None

    def accepted(self, watcher_id: int) -> None:
        """The broker has it."""
        self._is_open[watcher_id] = True

    def refused(self, watcher_id: int, *, is_new: bool) -> None:
        """It was not asked for, or the broker refused it: one that was there before is there still."""
        if is_new:
            self._forget(watcher_id)
        else:
            self._is_open[watcher_id] = True

    def closed(self, watcher_id: int) -> None:
        """The broker is told to close it."""
        if self._is_open.get(watcher_id):
            self._forget(watcher_id)

    def _forget(self, watcher_id: int) -> None:
        del self._is_open[watcher_id]
        self._memory.add(-WATCHER_MEMORY)
