"""The report's sentences and numbers."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from compliance.judging.facts import DoubtFacts
from compliance.judging.lines import SHORT_S
from compliance.judging.spells import Spells
from compliance.judging.verdict import COMPLETE, LimiterVerdict, Verdict, gravest

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def whole(value: float) -> str:
    """A count with thousands apart: 1 234 567 (narrow no-break spaces, which no locale takes for a decimal point)."""
    return f"{value:,.0f}".replace(",", "\u202f")


def numbered(number: int, noun: str) -> str:
    """A count of things: 1 limit, 2 limits."""
    return f"{whole(number)} {noun}" if number == 1 else f"{whole(number)} {noun}s"


def quantity(value: float) -> str:
    """A rate or size in three figures: 512, 1.5k, 20M."""
    for factor, prefix in _PREFIXES:
        # 999.6 would be shown as 1000 without its prefix.
        if abs(value) >= factor * 0.9995:
            return f"{value / factor:.3g}{prefix}"
    return f"{value:.3g}"


def percent(share: float) -> str:
    """A share of one; what is not whole is never shown as whole."""
    if abs(share - 1) < 1e-9:
        return "100 %"
    if share >= 10:
        return f"{whole(share * 100)} %"
    return f"{max(share * 100, 100.01):.5g} %" if share > 1 else f"{min(share * 100, 99.99):.2f} %"


def span(seconds: float) -> str:
    """A length of time."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def window(seconds: int) -> str:
    """A length of time that somebody chose: in the largest unit of which it is a whole number."""
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds % unit_s == 0:
            return f"{seconds // unit_s} {unit}"
    return f"{seconds} s"


def clock(time: datetime | None) -> str:
    """A moment, to the second."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time else "an unknown time"


def broken_for(spells: Spells | None) -> str:
    """For how long a promise was broken, and when: the first time and the longest."""
    return f"broken {_when(spells)}" if spells else ""


def _when(spells: Spells) -> str:
    if spells.times == 1:
        return f"for {span(spells.seconds)} at {clock(spells.first)}"
    first, longest = clock(spells.first), f"the longest for {span(spells.longest_s)} at {clock(spells.longest)}"
    return f"for {span(spells.seconds)} in {spells.times} spells, the first at {first}, {longest}"


def containment(limiter: LimiterVerdict) -> str:
    """How long the limit was kept, of which time."""
    if limiter.containment == "no limit":
        return ""
    if limiter.containment == "unknown":
        return "no overrun in what the log shows"
    return _kept(limiter.containment_share, "the time", limiter.containment_broken)


def entitlement(limiter: LimiterVerdict) -> str:
    """How long all passed that was owed, of which time."""
    verdict, waited = limiter.entitlement, f"the {span(limiter.throttled_s)} in which somebody waited"
    if verdict == "no limit":
        return ""
    if verdict == "violated" and limiter.entitlement_broken is None:
        return f"{limiter.shortfall_percent:.1f} % less than owed, summed up over {waited}"
    if verdict != "violated" and not limiter.throttled_s:
        refused = limiter.rejected_messages
        return "nobody waited: what was over was refused" if refused else _nobody(verdict)
    if verdict == "unknown":
        return f"no shortfall in what the log shows of {waited}"
    return _kept(limiter.entitlement_share, waited, limiter.entitlement_broken)


def late(limiter: LimiterVerdict) -> str:
    """Whether the proxy itself tells why less passed than was owed."""
    least = limiter.worst_entitlement
    if least is None or limiter.entitlement != "violated" or not least.late_s:
        return ""
    return f"the proxy was late by {span(least.late_s)} in that window, by its own account: was its machine busy?"


def unseen(limiter: LimiterVerdict) -> str:
    """What would not have been seen, unless a violation was."""
    if limiter.unseen_percent is None or limiter.entitlement not in ("compliant", "unknown"):
        return ""
    return f"a shortfall of up to {limiter.unseen_percent:.3g} % in ten seconds would not show"


def _nobody(verdict: Verdict) -> str:
    return "nobody ever waited" if verdict == "compliant" else "nobody waited in what the log shows"


def _kept(share: float | None, of: str, spells: Spells | None) -> str:
    return ", ".join(part for part in (f"kept {percent(share or 0.0)} of {of}", broken_for(spells)) if part)


# ---- a tenant


def sentence(tenant: str, limiters: Sequence[LimiterVerdict]) -> str:
    """The verdict on both promises to one tenant.

    Args:
        tenant: Its name.
        limiters: Its limits, the gravest first.
    """
    limited = [limiter for limiter in limiters if limiter.containment != "no limit"]
    if not limited:
        return f"No limit of {tenant} was in force: there was nothing to keep."
    over = gravest(limiter.containment for limiter in limited)
    short = gravest(limiter.entitlement for limiter in limited)
    limits = f"the {numbered(len(limited), 'limit') if len(limited) > 1 else 'limit'} of {tenant}"
    if over == short == "unknown":
        was = "was" if len(limited) == 1 else "were"
        said = f"whether {limits} {was} kept, and those who waited got all that was owed, is not known"
    else:
        said = f"{_contained(over, limited, limits)}; {_entitled(short, limited)}"
    why = f": {unknown_for(limited)}" if "unknown" in (over, short) else ""
    return f"{said[0].upper()}{said[1:]}{why}."


def _contained(verdict: Verdict, limited: Sequence[LimiterVerdict], limits: str) -> str:
    if verdict == "violated":
        broken = [limiter for limiter in limited if limiter.containment == "violated"]
        which = limits if len(limited) == 1 else f"{len(broken)} of {limits}"
        was = "was" if len(broken) == 1 else "were"
        return f"{which} {was} exceeded{_worst(one.containment_broken for one in broken)}"
    return (
        f"nothing passed beyond {limits}"
        if verdict == "compliant"
        else f"whether more passed than {limits} allow is not known"
    )


def _entitled(verdict: Verdict, limited: Sequence[LimiterVerdict]) -> str:
    if verdict == "violated":
        broken = [limiter for limiter in limited if limiter.entitlement == "violated"]
        least = max(limiter.shortfall_percent for limiter in broken)
        when = _worst(one.entitlement_broken for one in broken)
        return f"those who waited got up to {least:.3g} % less than was owed{when}"
    if verdict == "unknown":
        return "whether those who waited got all that was owed is not known"
    is_waited = any(limiter.throttled_s for limiter in limited)
    return "those who waited got all that was owed" if is_waited else "nobody had to wait"


def _worst(spells: Iterable[Spells | None]) -> str:
    known = list(spells)
    worst = max((one for one in known if one), key=lambda one: one.seconds, default=None)
    which = "" if len(known) == 1 else " the worst"
    return f",{which} {_when(worst)}" if worst else ""


def unknown_for(limited: Sequence[LimiterVerdict]) -> str:
    """Why a limit among these is `unknown`: what of its lines contradicts itself, would not show, or is not there."""
    doubt = next((doubt for limiter in limited for doubt in limiter.doubts), None)
    if doubt is not None:
        return doubted(doubt)
    still_s = max(limiter.still_s for limiter in limited)
    if still_s > SHORT_S:
        return f"the proxy stood still, and did not serve those who waited for {span(still_s)}"
    least = min(limiter.coverage for limiter in limited)
    if least < COMPLETE:
        return f"lines of the log are missing, or may be (coverage {percent(least)})"
    blind = max(limiter.unseen_percent or 0.0 for limiter in limited)
    return f"up to {blind:.3g} % less than owed in ten seconds would not show"


def doubted(doubt: DoubtFacts) -> str:
    """Two things that the log says and that cannot both be true, and where."""
    number = doubt.last_line.line if doubt.last_line.line is not None else f"seq {doubt.last_line.seq}"
    return f"{doubt.direction} {doubt.level} {doubt.name}: {doubt.said} ({doubt.last_line.file}, line {number})"
