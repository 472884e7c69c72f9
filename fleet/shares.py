"""How one limit is divided among its members: weighted max-min fairness, in whole parts per million."""

from collections.abc import Sequence
from math import inf

WHOLE = 1_000_000
"""The whole of a limit, in parts per million: what all shares together never exceed."""

GRAIN = 125
"""Shares that are not small are whole multiples of so many parts per million: they take two bytes instead of three."""

_COARSE = 400 * GRAIN
"""Smaller shares are exact: a grain of this one is a quarter of a percent."""

MOST_WEIGHT = (1 << 16) - 1
"""The greatest weight of a claim. More streams that wait count as so many."""

UNBOUNDED = -1
"""The demand of a member that is held back by its share, and so cannot say how much it would use."""


def rounded(ppm: int) -> int:
    """Return the share that is granted for a part of a limit: that part, or up to a quarter of a percent less."""
    return ppm if ppm < _COARSE else ppm - ppm % GRAIN


def fill(wanted: Sequence[int], weights: Sequence[int], whole: int = WHOLE) -> list[int]:
    """Divide `whole` among members; return their shares, in order, whose sum is exactly `whole` if there are any.

    Water filling: the level, in parts per weight, rises for all alike, and a member that has what it wants stays there.
    So no member gets more than another one of the same weight while that one wants more. What is left when all have
    what they want is headroom, for the moment in which they want more. It is divided by weight among those that want
    something, and among all where none does. So a limit that one member alone uses is wholly its own.

    Args:
        wanted: What each one asks, in parts per million of the limit, or `UNBOUNDED`.
        weights: Each one's part of what is scarce, relative to the others'; at least 1.
        whole: What is divided, in parts per million.
    """
    shares = [0] * len(wanted)
    left = whole
    active = [index for index, one in enumerate(wanted) if one]
    weight = sum([weights[index] for index in active])
    # By the level at which each has what it wants; those that never have come last.
    rising = sorted([(wanted[index] / weights[index] if wanted[index] > 0 else inf, index) for index in active])
    for rank, (_, index) in enumerate(rising):
        one, own = wanted[index], weights[index]
        if one < 0 or one * weight > left * own:
            _divide(left, [each for _, each in rising[rank:]], weights, shares)
            return shares
        shares[index] = one
        left -= one
        weight -= own
    _divide(left, active or range(len(wanted)), weights, shares)
    return shares


def is_enough(shares: Sequence[int], targets: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether shares may stay as they are, though `fill` would divide the headroom in another way.

    They may if each member has what it wants, and at least half of the headroom that `fill` would give it besides. A
    member that wants nothing must have just what `fill` gives it: nothing beside others that want something, else its
    part of the burst. Without this rule each small change of what one uses would change the shares of all, though
    nobody is short of anything.
    """
    for share, target, one in zip(shares, targets, wanted, strict=True):
        if one < 0 or target < one or 2 * share < target + one or (one == 0 and share != target):
            return False
    return True


def _divide(left: int, among: Sequence[int], weights: Sequence[int], shares: list[int]) -> None:
    """Add `left` to the shares by weight: each is less than one from its part, and nothing is lost."""
    weight = sum([weights[index] for index in among])
    upto = before = 0
    for index in among:
        upto += weights[index]
        part = left * upto // weight
        shares[index] += part - before
        before = part
