"""One limit, set and taken back in Sluice's own form."""

from typing import Any

from limiter.levels import Setting
from limiter.rates import Direction
from proxy.policies.bodies import NO_LIMIT, kept_as_own, kept_as_pulsar_s
from proxy.policies.book import Book
from proxy.policies.group_changes import to_set_direction, to_take_back_direction
from proxy.policies.key import Key, rate_key
from proxy.policies.layers import Place


def to_set(book: Book, place: Place, section: dict[str, Any] | None) -> dict[Key, str | None]:
    """What to change so that a limit holds at a place; None limits nothing there, whatever the file says."""
    if place[1] is Setting.RESOURCE_GROUP:
        return to_set_direction(book, place[2], _direction(place), section)
    key = rate_key(*place)
    kept = kept_as_pulsar_s(NO_LIMIT[key.kind]) if section is None else kept_as_own(section)
    return {key: kept}


def to_take_back(book: Book, place: Place) -> dict[Key, str | None]:
    """What to change so that nothing is said at a place at run time by this address, and the file's value holds."""
    if place[1] is Setting.RESOURCE_GROUP:
        return to_take_back_direction(book, place[2], _direction(place))
    return {rate_key(*place): None}


def _direction(place: Place) -> Direction:
    return "dispatch" if place[0] == "dispatch" else "publish"
