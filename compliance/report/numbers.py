"""Numbers as people read them."""

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
