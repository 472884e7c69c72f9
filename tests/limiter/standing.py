"""Who stands where: what the tests of lines and queues look at."""

from limiter.limiter import Limiter
from limiter.stream import Stream
from limiter.wait_queue import Place


def place_of(stream: Stream, limiter: Limiter, time: int, number: int) -> Place:
    """A place that the test chooses."""
    place = Place(stream, limiter)
    place.time, place.number = time, number
    return place


def stated(stream: Stream) -> list[tuple[Limiter, int, int]]:
    """The places of a stream, as they are now."""
    return [(place.limiter, place.time, place.number) for place in stream.places]


def row_of(limiter: Limiter) -> list[Place]:
    """Who waits there, behind the gap."""
    return limiter.waiters._row[limiter.waiters._gone :]
