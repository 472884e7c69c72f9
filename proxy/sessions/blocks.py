"""What is blocked, as it concerns the streams of one session; `client_blocks.py` has what concerns its client."""

from collections.abc import Callable

from limiter.stream import Stream, StreamName
from protocol.commands import encode, text
from protocol.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandProducer,
    CommandSubscribe,
    NotAllowedError,
    ServerError,
    ServiceNotReady,
)
from protocol.topic_name import parse_topic
from proxy.blocking.blocklist import Blocklist
from proxy.blocking.rules import Key, Kind, Rule
from proxy.refusals import NO_REQUEST, request_refused
from proxy.sessions.outlet import Outlet
from proxy.sessions.requests import Requests
from proxy.sessions.streams import Streams
from proxy.sessions.turned_away import reopening_error

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
        requests: Where the answers to the proxy's own requests are awaited.
        reply: Sends a frame to the client.
        to_broker: Takes frames for the broker.
    """

    __slots__ = ("_blocklist", "_leaving", "_reply", "_requests", "_streams", "_to_broker")

    def __init__(
        self,
        blocklist: Blocklist,
        streams: Streams,
        requests: Requests,
        reply: Callable[[bytes], None],
        to_broker: Outlet,
    ) -> None:
        self._blocklist = blocklist
        self._streams = streams
        self._requests = requests
        self._reply = reply
        self._to_broker = to_broker
        self._leaving: dict[tuple[str, int], None] = {}

    def refuses_producer(self, command: CommandProducer) -> bool:
        """Whether a PRODUCER goes no further; its client has been told then."""
        name = StreamName("publish", "", "", text(command.topic), command.producer_id, text(command.producer_name))
        return self._refuses(name, command.request_id, reopening_error(command))

    def refuses_consumer(self, command: CommandSubscribe) -> bool:
        """Whether a SUBSCRIBE goes no further; its client has been told then."""
        name = StreamName(
            "dispatch",
            "",
            "",
            text(command.topic),
            command.consumer_id,
            subscription=text(command.subscription),
            consumer_name=text(command.consumer_name),
        )
        return self._refuses(name, command.request_id, NotAllowedError)

    def ends_opened(self, stream: Stream, request_id: int) -> bool:
        """Whether a stream that the broker has just accepted is blocked by now, or by the name that the broker chose.

        Then the client gets an error for its request in place of the broker's answer.
        """
        rule = self._of_stream(stream.name) if stream.is_open else None
        if rule is None:
            return False
        if self._end(stream, rule):
            self._reply(request_refused(request_id, NotAllowedError, str(rule)))
            return True
        return False

    def end_streams(self, rule: Rule) -> int:
        """End the streams that a new rule means; gives how many there were.

        Those that the broker has not accepted yet are looked at when it does.
        """
        found = [stream for stream in self._streams.accepted() if _may_mean(rule.key, stream.name)]
        ended = 0
        for stream in found:
            if self._of_stream(stream.name) is not None:
                ended += 1
                if self._end(stream, rule):
                    self._reply(_close(stream.name, NO_REQUEST))
        return ended

    def _of_stream(self, name: StreamName) -> Rule | None:
        rules = self._blocklist.rules
        if not rules:
            return None
        try:
            topic = parse_topic(name.topic)
        except ValueError:
            return None  # the client will be told as everybody who sends that
        if name.direction == "publish":
            return rules.of_producer(topic, name.producer_name)
        return rules.of_consumer(topic, name.subscription, name.consumer_name)

    def _refuses(self, name: StreamName, request_id: int, error: ServerError) -> bool:
        rule = self._of_stream(name)
        if rule is not None:
            self._blocklist.refused(rule)
            self._streams.rejects.note(self._streams.connection, "blocked", name.topic, str(rule))
            self._reply(request_refused(request_id, error, str(rule)))
            return True
        if (name.direction, name.stream_id) in self._leaving:
            # The broker still has the one before, and would take this for that.
            self._reply(request_refused(request_id, ServiceNotReady, "it was blocked and is still being closed"))
            return True
        return False

    def _end(self, stream: Stream, rule: Rule) -> bool:
        """Close a stream here and at the broker. False if its client has asked for that already."""
        was_closing, name = self._streams.is_closing(stream), stream.name
        self._streams.close(stream)
        what = {"direction": name.direction, "topic": name.topic, "stream": name.stream_id}
        self._blocklist.ended(rule, self._streams.connection, **what)
        if was_closing:
            return False
        key = name.direction, name.stream_id
        self._leaving[key] = None
        request_id = self._requests.own(lambda: self._leaving.pop(key, None))
        self._to_broker.insert(_close(name, request_id))
        return True


def _may_mean(key: Key, name: StreamName) -> bool:
    """A quick look, so that a new rule costs little however many streams there are."""
    if key.kind is Kind.TOPIC:
        return name.topic.startswith(key.name)
    return _NAME[key.kind](name) == key.name


def _close(name: StreamName, request_id: int) -> bytes:
    if name.direction == "publish":
        return encode(CommandCloseProducer(producer_id=name.stream_id, request_id=request_id))
    return encode(CommandCloseConsumer(consumer_id=name.stream_id, request_id=request_id))
