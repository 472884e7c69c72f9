"""How one limit is divided among its members: weighted max-min fairness, in whole parts per million."""

from collections.abc import Sequence
from math import inf

WHOLE = 1_000_000
"""The whole of a limit, in parts per million. All shares together never exceed it."""

GRAIN = 125
"""Shares that are not small are multiples of this, in parts per million: they take two bytes instead of three."""

_COARSE = 400 * GRAIN
"""Smaller shares are exact. Here a grain is a quarter of a percent."""

MOST_WEIGHT = (1 << 16) - 1
"""The greatest weight of a claim. More waiting streams count as this number."""

UNBOUNDED = -1
"""The demand of a member whose share holds it back: the rate that it would use is unknown."""


def rounded(ppm: int) -> int:
    """Return the share to grant for a part of a limit: that part, or up to a quarter of a percent less."""
    return ppm if ppm < _COARSE else ppm - ppm % GRAIN


def fill(wanted: Sequence[int], weights: Sequence[int], whole: int = WHOLE) -> list[int]:
    """Divide `whole` among members; return their shares, in order, whose sum is exactly `whole` if there are any.

    Water filling: the level, in parts per weight, rises for all alike, and each member stays at the level of its
    demand. So no member gets more than another one of the same weight whose demand is not met. The rest, once all
    demands are met, is headroom for the moment in which demands grow. It is divided by weight among members with a
    demand, or among all if none has one. So a limit that one member alone uses is wholly its own.

    Args:
        wanted: Each member's demand, in parts per million of the limit, or `UNBOUNDED`.
        weights: Each member's part of a scarce limit, relative to the others'; at least 1.
        whole: The amount to divide, in parts per million.
    """
    shares = [0] * len(wanted)
    left = whole
    active = [index for index, demand in enumerate(wanted) if demand]
    weight = sum([weights[index] for index in active])
    # By the level at which each demand is met; unbounded ones come last.
    rising = sorted([(wanted[index] / weights[index] if wanted[index] > 0 else inf, index) for index in active])
    for rank, (_, index) in enumerate(rising):
        demand, own = wanted[index], weights[index]
        if demand < 0 or demand * weight > left * own:
            _divide(left, [member for _, member in rising[rank:]], weights, shares)
            return shares
        shares[index] = demand
        left -= demand
        weight -= own
    _divide(left, active or range(len(wanted)), weights, shares)
    return shares


def is_enough(shares: Sequence[int], targets: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether shares may stay as they are, though `fill` would divide the headroom in another way.

    They may if each member's share meets its demand, and has at least half of the headroom that `fill` would give. A
    member without a demand must have exactly the share that `fill` gives: 0 if others have a demand, else its part of
    the burst. Without this rule each small change of one member's use would change the shares of all, though no member
    is short.
    """
    for share, target, demand in zip(shares, targets, wanted, strict=True):
        is_short = demand < 0 or target < demand or 2 * share < target + demand
        if is_short or (demand == 0 and share != target):
            return False
    return True


def _divide(left: int, among: Sequence[int], weights: Sequence[int], shares: list[int]) -> None:
    """Add `left` to the shares by weight: each gets its part to within 1, and the sum is exact."""
    weight = sum([weights[index] for index in among])
    upto = before = 0
    for index in among:
        upto += weights[index]
        part = left * upto // weight
        shares[index] += part - before
        before = part
