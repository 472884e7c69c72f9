"""Why a stream waits, and which limits it is under."""

from limiter.limiter import Limiter
from limiter.rates import NANOS_PER_SECOND, PUBLISH_WINDOW_NS, Limit, Rate
from limiter.stream import Stream


def reason(stream: Stream) -> Limiter | None:
    """The limiter that a stream waits on, or else the last that held or rejected something of it, if still there."""
    if stream.waits_on is not None:
        return stream.waits_on
    return next((limiter for limiter in stream.chain if limiter.scope.level == stream.last_reason), None)


def withholding(stream: Stream) -> Limiter | None:
    """Of the limiters that withhold permits which a consumer asked for, the one with the least room; None if none."""
    if stream.permits is None or stream.permits.asked == 0:
        return None
    rooms = [(meter.room() / meter.horizon, place) for place, one in enumerate(stream.chain) for meter in one.meters]
    return stream.chain[min(rooms)[1]] if rooms else None


def resource_group(stream: Stream) -> str:
    """The resource group whose limit a stream is under, if only observed; empty for none."""
    observed = stream.observed.chain if stream.observed else ()
    scopes = (limiter.scope for limiter in (*stream.chain, *observed))
    return next((scope.name for scope in scopes if scope.level == "resource_group"), "")


def narrowest(chain: tuple[Limiter, ...]) -> tuple[Limiter | None, float | None, float | None]:
    """The lowest messages and the lowest bytes per second of some limiters, and before them the limiter of the first.

    The two may be of different limiters; the one given is then that of the messages. Of equal ones the outermost.
    """
    messages = size = None
    of_messages: Limiter | None = None
    of_size: Limiter | None = None
    for limiter in chain:
        by_count, by_size = per_second(limiter.limit.messages), per_second(limiter.limit.size)
        if by_count is not None and (messages is None or by_count < messages):
            messages, of_messages = by_count, limiter
        if by_size is not None and (size is None or by_size < size):
            size, of_size = by_size, limiter
    return of_messages or of_size, messages, size


def per_second(rate: Rate | None) -> float | None:
    """Tokens per second; None for no limit."""
    return None if rate is None else rate.per_second


def burst(rate: Rate | None) -> float | None:
    """The capacity of a rate's bucket; None for no limit."""
    return None if rate is None else float(rate.burst)


def published_per_second(limit: Limit) -> tuple[float | None, float | None]:
    """The topic's publish rate that is a part of a limit's messages and of its bytes per second; None for no part."""
    if limit.published is None:
        return None, None
    window_s = PUBLISH_WINDOW_NS / NANOS_PER_SECOND
    return (
        None if limit.messages is None else limit.published.messages / window_s,
        None if limit.size is None else limit.published.size / window_s,
    )
