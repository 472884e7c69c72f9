"""Who stands where: what the tests of lines and queues look at."""

from limiter.limiter import FinishTag, Limiter, Stream


def place_of(stream: Stream, limiter: Limiter, time: int, number: int) -> FinishTag:
    """A place that the test chooses."""
    place = FinishTag(stream, limiter)
    place.time, place.number = time, number
    return place


def stated(stream: Stream) -> list[tuple[Limiter, int, int]]:
    """The places of a stream, as they are now."""
    return [(place.limiter, place.time, place.number) for place in stream.places]


def row_of(limiter: Limiter) -> list[FinishTag]:
    """Who waits there, behind the gap."""
    return limiter.waiters._row[limiter.waiters._gone :]
