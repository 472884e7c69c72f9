"""What people are told beside the result, on standard error."""

from collections.abc import Iterator

from proxy.importing.found import Found, Left


def told(found: Found, *, verbose: bool) -> Iterator[str]:
    """Everything worth knowing about an import, line by line; nothing that limits goes unmentioned.

    Args:
        found: What was found.
        verbose: Name the keys that are off or not about limits, too.
    """
    yield f"{_count(len(found.taken), 'value')} taken over"
    yield from _list("worth a look:", found.notes)
    yield from _list("limits at the broker, and has no place here:", _by_reason(found.left))
    yield from _keys(f"{_count(len(found.off), 'key')} about limits set to none", found.off, verbose=verbose)
    yield from _keys(f"{_count(len(found.others), 'key')} not about limits", found.others, verbose=verbose)
    yield from _list("once all clients come through Sluice, these end the limits at the broker:", found.switch_off)
    yield from _list("and this, by hand:", found.by_hand)


def _list(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield title
        yield from (f"  {line}" for line in lines)


def _by_reason(left: list[Left]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for one in left:
        reasons.setdefault(one.why, []).append(one.what)
    return [line for why, named in reasons.items() for line in (f"{why}:", *(f"  {what}" for what in named))]


def _keys(title: str, keys: list[str], *, verbose: bool) -> Iterator[str]:
    if keys and verbose:
        yield from _list(f"{title}:", sorted(keys))
    elif keys:
        yield f"{title} (--verbose names them)"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
