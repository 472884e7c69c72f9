"""Whose turn it is, where streams wait on several limiters at once.

A stream waits in one queue at a time, but from the moment that its next entry is in line it has a place at every
limiter of its chain. So waiting on one does not cost it its turn at another. And as soon as only one limiter's tokens
keep it from passing, it has a *claim* at the others: there, others go on only as far as they leave it room. Without
claims two busy limiters would never be open at the same moment, and a stream within both would wait for ever; the same
idea lets wide jobs run on busy clusters.

Source: EASY backfilling, D. Lifka, The ANL/IBM SP scheduling system, 1995
"""

from limiter.limiter import Limiter
from limiter.rates import Rate
from limiter.stream import Stream


def obstacle_of(stream: Stream, now: int) -> Limiter | None:
    """The first limiter that does not let a newcomer pass."""
    for limiter in stream.chain:
        if limiter.waiters or not limiter.is_open(now):
            return limiter
    return None


def rejecting(stream: Stream, now: int) -> Limiter | None:
    """The limit in mode `reject` that a newcomer is over which may not pass; None if it may be held.

    What is held already waits for this one too: it was within it when it came. So does what comes behind it, or its
    refusal would have to wait for answers that are far away.
    """
    if stream.held:
        return None
    for limiter in stream.chain:
        if limiter.is_rejecting and (limiter.waiters or not limiter.is_open(now)):
            return limiter
    return None


def lent_in_the_way(stream: Stream, now: int) -> list[Limiter]:
    """The limiters that a newcomer may not pass now, of which workers have tokens that they may give back."""
    return [one for one in stream.chain if one.borrowers and (one.waiters or not one.is_open(now))]


def refusal_of(limiter: Limiter) -> str:
    """What a client is told of the limit that refuses its message."""
    scope, limit = limiter.scope, limiter.limit
    values = [_words(limit.messages, "messages"), _words(limit.size, "bytes")]
    of = f"{scope.level} {scope.name}".strip()
    return f"over the publish limit of {of}: {' and '.join([value for value in values if value])}"


def refusing(stream: Stream, now: int) -> Limiter | None:
    """Where a stream that has its places must wait: behind others, or else for the tokens that come last."""
    all_open = True
    for place in stream.places:
        if not place.limiter.waiters.is_before_all(place):
            return place.limiter
        all_open = all_open and place.limiter.is_open(now)
    return None if all_open else _last_to_open(stream, now)


def meet(stream: Stream, waits_on: Limiter, now: int) -> None:
    """A stream begins to wait on one: where somebody waits on another of its own, their turns depend on both."""
    crossed = _others_waited_on(stream, waits_on)
    for limiter in crossed:
        limiter.crossed_at = waits_on.crossed_at = now
    if crossed and waits_on.waiters.is_before_all(stream.place_at(waits_on)) and not waits_on.is_open(now):
        claim(stream, waits_on)


def claim(stream: Stream, waits_on: Limiter) -> None:
    """Let the other limiters leave room for a stream that waits for nothing but the tokens of `waits_on`.

    One claim at a limiter is enough, the earliest: when it has gone, the next stream's turn comes.
    """
    for limiter in _others_waited_on(stream, waits_on):
        known = limiter.claimant
        if known is None or stream.place_at(limiter).precedes(known.place_at(limiter)):
            limiter.claimant = stream


def next_turn(limiter: Limiter, now: int) -> Stream | None:
    """Whose turn it is: the first's, unless it would not leave room for who has a claim; then nobody's.

    A first that must wait elsewhere anyway is in nobody's way: it takes its turn by going there.
    """
    first, claimant = limiter.waiters.first(), limiter.claimant
    if claimant is None or claimant.waits_on is None:
        return first
    if first.place_at(limiter).precedes(claimant.place_at(limiter)):
        return first
    claimant.waits_on.crossed_at = limiter.crossed_at = now
    if claimant.waits_on.waiters.first() is not claimant:
        return first
    wait = claimant.waits_on.wait_ns(now)
    if wait == 0:
        return first if refusing(claimant, now) else claimant
    leaves_room = limiter.wait_behind_ns(first.held[0], now) <= wait
    return first if leaves_room or refusing(first, now) else None


def _last_to_open(stream: Stream, now: int) -> Limiter:
    return max(stream.chain, key=lambda limiter: limiter.wait_ns(now))


def _others_waited_on(stream: Stream, but: Limiter) -> list[Limiter]:
    return [limiter for limiter in stream.chain if limiter is not but and limiter.waiters]


def _words(rate: Rate | None, unit: str) -> str:
    return "" if rate is None else f"{rate.tokens} {unit} per {rate.period_ns / 1e9:g} s"
