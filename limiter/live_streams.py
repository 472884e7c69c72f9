"""The streams that are open, with what limits look at, and which of them a change can concern."""

from collections.abc import Iterator

from limiter.changes import OF_NAMESPACE, OF_TOPIC, Change
from limiter.levels import Client, Topic
from limiter.stream import Stream


class LiveStreams:
    """Finds the streams of a topic, or of a namespace, without looking at all others."""

    def __init__(self) -> None:
        self._known: dict[Stream, tuple[Topic, Client]] = {}
        self._of_topics: dict[str, dict[Stream, None]] = {}
        self._of_namespaces: dict[str, dict[Stream, None]] = {}

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
        self._of_namespaces.setdefault(topic.namespace_name, {})[stream] = None

    def remove(self, stream: Stream) -> None:
        """It is over."""
        known = self._known.pop(stream, None)
        if known is not None:
            _take_out(self._of_topics, known[0].partitioned, stream)
            _take_out(self._of_namespaces, known[0].namespace_name, stream)

    def concerned(self, change: Change) -> list[Stream]:
        """Every stream that a change can concern; others may be among them."""
        if change.setting in OF_TOPIC:
            streams = [stream for name in change.topics() for stream in self._of_topics.get(name, ())]
        elif change.setting in OF_NAMESPACE:
            streams = list(self._of_namespaces.get(change.name, ()))
        else:
            streams = list(self._known)
        return [stream for stream in streams if stream.name.direction == change.about]


def _take_out(table: dict[str, dict[Stream, None]], name: str, stream: Stream) -> None:
    streams = table[name]
    del streams[stream]
    if not streams:
        del table[name]
