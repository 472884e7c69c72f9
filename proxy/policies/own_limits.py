"""One limit, set and taken back in Sluice's own form."""

from typing import Any

from limiter.levels import Setting
from proxy.policies.bodies import NO_LIMIT, kept_as_own, kept_as_pulsar_s
from proxy.policies.book import Book
from proxy.policies.group_body import DIRECTIONS, OwnGroup, kept_as_own_group, own_group
from proxy.policies.key import Key, Kind, rate_key
from proxy.policies.layers import Layer, Place
from proxy.policies.sections import section_of


def to_set(book: Book, place: Place, section: dict[str, Any] | None) -> dict[Key, str | None]:
    """What to change so that a limit holds at a place; None limits nothing there, whatever the file says."""
    if place[1] is Setting.RESOURCE_GROUP:
        return _group(book, place, {"dispatch" if place[0] == "dispatch" else "publish": section})
    key = rate_key(*place)
    kept = kept_as_pulsar_s(NO_LIMIT[key.kind]) if section is None else kept_as_own(section)
    return {key: kept}


def to_take_back(book: Book, place: Place) -> dict[Key, str | None]:
    """What to change so that nothing is said at a place at run time by this address, and the file's value holds."""
    if place[1] is Setting.RESOURCE_GROUP:
        return _group(book, place, {})
    return {rate_key(*place): None}


def _group(book: Book, place: Place, said: OwnGroup) -> dict[Key, str | None]:
    """The other direction stays; a group of which nothing is said and nothing is attached to ends."""
    key = Key(Kind.GROUP, "", place[2])
    others = {direction: section for direction, section in _of_group(book, key).items() if direction != place[0]}
    body: OwnGroup = others | said
    ends = not body and not book.is_attached(place[2])
    return {key: None if ends else kept_as_own_group(body)}


def _of_group(book: Book, key: Key) -> OwnGroup:
    kept = book.read(key)
    if kept is None:
        return {}
    own = own_group(kept)
    if own is not None:
        return own
    found: OwnGroup = {}
    for direction in DIRECTIONS:
        value = book.layers.written(Layer.REST, (direction, Setting.RESOURCE_GROUP, key.name))
        if value is not None:
            found[direction] = dict(section_of(direction, value.limit)) or None
    return found
