"""PRODUCERs whose CLOSE was answered before they were themselves.

Brokers authorize a PRODUCER before they give it its id, and may let it in long after its CLOSE: an honest client closes
what took longer to open than it would wait. So a producer may still come, and no other topic may have its id. Another
name may: with each answer the broker says the name that its producer has.

    PRODUCER(id 1, topic A) ─▶ authorizes …           CLOSE(id 1) ─▶ SUCCESS: nobody has the id
                               … PRODUCER_SUCCESS: the broker has id 1 on topic A

Source: handleProducer of org.apache.pulsar.broker.service.ServerCnx
"""

from collections import deque

MOST_GIVEN_UP = 1000
"""Of one connection; the oldest is forgotten, and its late answer ends the connection."""


class GivenUp:
    """Those of one connection that may still be answered."""

    __slots__ = ("_order", "_topics")

    def __init__(self) -> None:
        self._topics: dict[int, dict[int, str]] = {}
        """By request id, by producer id."""
        self._order: deque[tuple[int, int]] = deque()
        """Producer and request ids, some of which have been answered since."""

    def add(self, producer_id: int, topic: str, request_id: int) -> int | None:
        """Keep one more; gives the request that is forgotten for it, if there is one."""
        self._topics.setdefault(producer_id, {})[request_id] = topic
        self._order.append((producer_id, request_id))
        if len(self._order) <= MOST_GIVEN_UP:
            return None
        whose, oldest = self._order.popleft()
        return oldest if self.answered(whose, oldest) else None

    def answered(self, producer_id: int, request_id: int) -> bool:
        """The broker answered one, or it is forgotten. Whether it was kept."""
        topics = self._topics.get(producer_id, {})
        was_kept = topics.pop(request_id, None) is not None
        if was_kept and not topics:
            del self._topics[producer_id]
        return was_kept

    def forbids(self, producer_id: int, topic: str) -> bool:
        """Whether a producer of another topic may still come under this id."""
        return any(one != topic for one in self._topics.get(producer_id, {}).values())
