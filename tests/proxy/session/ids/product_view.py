"""What Sluice believes of a session's producers and consumers: the one place of these tests that looks inside of it."""

from limiter.limiter import Stream
from proxy.session.session import Session
from tests.proxy.conversation import World
from tests.proxy.session.ids.broker_ids import Place


def accepted(session: Session) -> tuple[dict[int, Stream], dict[int, Stream]]:
    """The producers and the consumers that are open: the broker has accepted them, and nobody has ended them."""
    if session.forwarding is None:
        return {}, {}
    all_of = session.forwarding._streams
    streams = [stream for stream in all_of.present() if not all_of.is_opening(stream)]
    return _by_number(streams, "publish"), _by_number(streams, "dispatch")


def reopening(session: Session) -> int:
    """How many open streams the client has opened once more, and awaits the answer."""
    return 0 if session.forwarding is None else len(session.forwarding._streams._reopening or ())


def _by_number(streams: list[Stream], direction: str) -> dict[int, Stream]:
    return {stream.name.stream_id: stream for stream in streams if stream.name.direction == direction}


def live(world: World, session: Session) -> list[Stream]:
    """All streams of the session, accepted or not."""
    return [stream for stream in world.engine.registry.live() if stream.connection is session.connection]


def place_of(stream: Stream) -> Place:
    """Topic, subscription and name, as Sluice has them."""
    name = stream.name
    return name.topic, name.subscription, name.producer_name or name.consumer_name


def passed(stream: Stream) -> tuple[int, int, int]:
    """Entries, messages and bytes that it was charged with and that passed."""
    return stream.usage.passed


def limited_by(stream: Stream) -> set[tuple[str, str]]:
    """Level and name of each limit that it is within."""
    return {(limiter.scope.level, limiter.scope.name) for limiter in stream.chain}
