"""What a journal has to report, read at once, as the access log does it in slices."""

from limiter.activity import ActivityJournal
from limiter.limiter import Limiter, Stream


def emptied(journal: ActivityJournal) -> tuple[list[Stream], list[Limiter]]:
    """End a period of a journal; returns its streams and limiters."""
    streams, limiters = journal.end_period()
    for stream in streams:
        journal.taken(stream)
    for limiter in limiters:
        journal.taken(limiter)
    return list(streams), list(limiters)
