"""What is played beside a stream, for tests that look into it."""

from limiter.limiter import Stream
from limiter.shadow import ShadowStream


def played_by(stream: Stream) -> Stream:
    """The stream on which the observed limits of this one are played."""
    assert isinstance(stream.observed, ShadowStream)
    return stream.observed._stream
