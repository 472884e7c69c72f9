"""The tags of queues and streams, for the tests of wait lists."""

from limiter.limiter import FinishTag, Limiter, Stream


def tag_of(stream: Stream, limiter: Limiter, time: int, number: int) -> FinishTag:
    """A tag that the test chooses."""
    tag = FinishTag(stream, limiter)
    tag.time, tag.number = time, number
    return tag


def stated(stream: Stream) -> list[tuple[Limiter, int, int]]:
    """The tags of a stream, as they are now."""
    return [(tag.limiter, tag.time, tag.number) for tag in stream.tags]


def row_of(limiter: Limiter) -> list[FinishTag]:
    """The tags in the queue, without removed ones."""
    return limiter.waiters._row[limiter.waiters._gone :]
