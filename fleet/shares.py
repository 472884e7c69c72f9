"""How one limit is divided among those who want it: weighted max-min fairness, in whole parts per million."""

from collections.abc import Sequence
from typing import NamedTuple

WHOLE = 1_000_000
"""The whole of a limit, in parts per million: what all shares together never exceed."""

UNBOUNDED = -1
"""Wanted by who is held back by its share, and so cannot say how much it would use."""


class ShareClaim(NamedTuple):
    """What one member asks of one limit.

    Attributes:
        wanted: Parts per million of the limit, or `UNBOUNDED`.
        weight: Its part of what is scarce, relative to the others'; at least 1.
    """

    wanted: int
    weight: int


def fill(claims: Sequence[ShareClaim], whole: int = WHOLE) -> list[int]:
    """Divide `whole` among the claims; return their shares, in order, whose sum is exactly `whole` if there are any.

    Water filling: the level, in parts per weight, rises for all alike; who has what it wants stays there. So nobody
    gets more than another one of the same weight while that one wants more. What is left when all have what they want
    is headroom, for the moment in which they want more: it is divided by weight among those who want something; and
    among all, where nobody does. So what one member alone uses is wholly its own.
    """
    shares = [0] * len(claims)
    if not claims:
        return shares
    left = whole
    active = [index for index, claim in enumerate(claims) if claim.wanted != 0]
    weight = sum(claims[index].weight for index in active)
    rising = sorted(active, key=lambda index: _height(claims[index], whole))
    for place, index in enumerate(rising):
        claim = claims[index]
        if claim.wanted == UNBOUNDED or claim.wanted * weight > left * claim.weight:
            _divide(left, rising[place:], claims, shares)
            return shares
        shares[index] = claim.wanted
        left -= claim.wanted
        weight -= claim.weight
    _divide(left, active or list(range(len(claims))), claims, shares)
    return shares


def _height(claim: ShareClaim, whole: int) -> float:
    """Return the level at which the claim is met; those that never are come last."""
    return whole + 1.0 if claim.wanted == UNBOUNDED else min(whole, claim.wanted / claim.weight)


def _divide(left: int, among: Sequence[int], claims: Sequence[ShareClaim], shares: list[int]) -> None:
    """Add `left` to the shares by weight: each is less than one from its part, and nothing is lost."""
    weight = sum(claims[index].weight for index in among)
    below = 0
    for index in among:
        upto = below + claims[index].weight
        shares[index] += left * upto // weight - left * below // weight
        below = upto
