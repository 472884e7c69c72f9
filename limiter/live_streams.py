"""The streams that are open, with what limits look at, and which of them a change can concern."""

from collections.abc import Iterator

from limiter.changes import OF_NAMESPACE, OF_TOPIC, Change
from limiter.levels import Client, Topic
from limiter.stream import Stream


class LiveStreams:
    """Finds a topic's streams without looking at all others."""

    def __init__(self) -> None:
        self._known: dict[Stream, tuple[Topic, Client]] = {}
        self._of_topics: dict[str, dict[Stream, None]] = {}

    def __contains__(self, stream: Stream) -> bool:
        return stream in self._known

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._known)

    def __getitem__(self, stream: Stream) -> tuple[Topic, Client]:
        return self._known[stream]

    def get(self, stream: Stream) -> tuple[Topic, Client] | None:
        """Whose it is, if it is open."""
        return self._known.get(stream)

    def put(self, stream: Stream, topic: Topic, client: Client) -> None:
        """It is open, or more is known of its client."""
        self._known[stream] = topic, client
        self._of_topics.setdefault(topic.partitioned, {})[stream] = None

    def remove(self, stream: Stream) -> None:
        """It is over."""
        known = self._known.pop(stream, None)
        if known is None:
            return
        name = known[0].partitioned
        of_topic = self._of_topics[name]
        del of_topic[stream]
        if not of_topic:
            del self._of_topics[name]

    def concerned(self, change: Change) -> list[Stream]:
        """Every stream that a change can concern; others may be among them."""
        if change.setting in OF_TOPIC:
            streams = [stream for name in change.topics() for stream in self._of_topics.get(name, ())]
        elif change.setting in OF_NAMESPACE:
            streams = [stream for stream, (topic, _) in self._known.items() if topic.namespace_name == change.name]
        else:
            streams = list(self._known)
        return [stream for stream in streams if stream.name.direction == change.about]
