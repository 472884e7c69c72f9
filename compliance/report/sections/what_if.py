"""What proposed limits would have done, and what that cannot say."""

from collections.abc import Iterable
from typing import Literal

from compliance.figures.facts import LimitKey, ReplayFacts
from compliance.figures.proposals import Proposal

Certainty = Literal["sound", "lower bound"]
Effect = Literal["newly held", "still held", "holds nobody"]

CENSORED = (
    "A client that was held back sent less than it wanted, and no log holds what was never sent. So where somebody "
    "waited on a limit then in force, the result for a looser limit is a lower bound: more may have been held. For a "
    "tighter one it is sound, but for what clients would have done about it."
)


class WhatIf(LimitKey, frozen=True, kw_only=True):
    """One proposed limit on one name of one proxy."""

    proposed: Proposal
    effect: Effect
    """`newly held`: it would hold messages on which nobody waited in the log."""
    certainty: Certainty
    is_caught_up: bool
    """At the end of the log nothing would have waited any more (for longer than ten seconds)."""
    facts: ReplayFacts


def what_ifs(replays: list[ReplayFacts], proposals: list[Proposal]) -> list[WhatIf]:
    """Newly held first, then by how much would have been held."""
    order: dict[Effect, int] = {"newly held": 0, "still held": 1, "holds nobody": 2}
    rows = [_what_if(row, proposals[row.proposal]) for row in replays]
    return sorted(rows, key=lambda row: (order[row.effect], row.facts.proposal, -row.facts.held_messages, row.name))


def unmatched(replays: Iterable[ReplayFacts], proposals: list[Proposal]) -> list[str]:
    """Proposals that fit no name in the log, in words."""
    fitted = {row.proposal for row in replays}
    return [
        f"{proposal.direction} {proposal.level} {proposal.name}"
        for place, proposal in enumerate(proposals)
        if place not in fitted
    ]


def _what_if(row: ReplayFacts, proposal: Proposal) -> WhatIf:
    is_held, was_held = row.held_messages > 0, row.censored_s > 0
    effect: Effect = "holds nobody" if not is_held else "still held" if was_held else "newly held"
    return WhatIf(
        proxy_id=row.proxy_id,
        direction=row.direction,
        level=row.level,
        name=row.name,
        proposed=proposal,
        effect=effect,
        certainty="lower bound" if was_held and _is_looser(row, proposal) else "sound",
        is_caught_up=row.left_ms < 10_000,
        facts=row,
    )


def _is_looser(row: ReplayFacts, proposal: Proposal) -> bool:
    """In some unit it allows more than the lowest limit that its streams then had."""
    pairs = ((proposal.messages, row.limit_now_messages), (proposal.bytes, row.limit_now_bytes))
    return any(now is not None and (proposed is None or proposed > now) for proposed, now in pairs)
