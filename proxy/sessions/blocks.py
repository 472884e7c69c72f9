"""What is blocked, as it concerns the streams of one session; `client_blocks.py` has what concerns its client."""

from collections.abc import Callable

from limiter.stream import Stream, StreamName
from protocol.pulsar_pb2 import ServerError
from protocol.topic_name import TopicName, parse_topic
from proxy.blocking.blocklist import Blocklist
from proxy.blocking.rules import Key, Kind, Rule
from proxy.refusals import RefusedError
from proxy.sessions.streams import Streams, close_told

_NAME: dict[Kind, Callable[[StreamName], str]] = {
    Kind.PRODUCER: lambda name: name.producer_name,
    Kind.CONSUMER: lambda name: name.consumer_name,
    Kind.SUBSCRIPTION: lambda name: name.subscription,
}


class SessionBlocks:
    """Refuses what is blocked before the broker hears of it, and ends what is blocked later.

    The end of a stream is told on both legs: to the client as a broker would, which makes it look the topic up and open
    anew, and there it gets the error; to the broker as a client would, with a request of the proxy's own.

    Args:
        blocklist: The rules.
        streams: The session's producers and consumers.
        reply: Sends a frame to the client.
    """

    __slots__ = ("_blocklist", "_reply", "_streams")

    def __init__(self, blocklist: Blocklist, streams: Streams, reply: Callable[[bytes], None]) -> None:
        self._blocklist = blocklist
        self._streams = streams
        self._reply = reply

    def check(self, name: StreamName, topic: TopicName, error: ServerError) -> None:
        """A stream of this name is to be opened.

        Raises:
            RefusedError: With `error`, if a rule is against it.
        """
        rule = self._of_stream(name, topic)
        if rule is not None:
            self._blocklist.refused(rule)
            self._streams.rejects.note(self._streams.connection, "blocked", name.topic, str(rule))
            raise RefusedError(error, str(rule))

    def of_opened(self, stream: Stream) -> Rule | None:
        """The rule against a stream that the broker has just accepted, which it did not know of, or made by its name.

        It is ended then; its client is to get an error in place of the broker's answer.
        """
        rule = self._of_stream(stream.name) if stream.is_open else None
        if rule is not None:
            self._end(stream, rule)
        return rule

    def end_streams(self, rule: Rule) -> int:
        """End the streams that a new rule means; gives how many there were.

        Those that the broker has not accepted yet are looked at when it does.
        """
        found = [stream for stream in self._streams.accepted() if _may_mean(rule.key, stream.name)]
        ended = 0
        for stream in found:
            if self._of_stream(stream.name) is not None:
                ended += 1
                was_closing = self._streams.is_closing(stream)
                self._end(stream, rule)
                if not was_closing:  # else the client hears of its end already
                    self._reply(close_told(stream.name))
        return ended

    def _of_stream(self, name: StreamName, topic: TopicName | None = None) -> Rule | None:
        rules = self._blocklist.rules
        if not rules:
            return None
        topic = topic or parse_topic(name.topic)
        if name.direction == "publish":
            return rules.of_producer(topic, name.producer_name)
        return rules.of_consumer(topic, name.subscription, name.consumer_name)

    def _end(self, stream: Stream, rule: Rule) -> None:
        name = stream.name
        self._streams.expel(stream)
        what = {"direction": name.direction, "topic": name.topic, "stream": name.stream_id}
        self._blocklist.ended(rule, self._streams.connection, **what)


def _may_mean(key: Key, name: StreamName) -> bool:
    """A quick look, so that a new rule costs little however many streams there are."""
    if key.kind is Kind.TOPIC:
        return name.topic.startswith(key.name)
    return _NAME[key.kind](name) == key.name
