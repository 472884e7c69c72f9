"""Changes of one part of a resource group, by what is in force then; the rest stays as it is."""

from dataclasses import replace
from typing import Any

import msgspec

from limiter.levels import Setting
from limiter.rates import DIRECTIONS, Direction, Limit, rate
from proxy.policies.bodies import ResourceGroup, read_body
from proxy.policies.contents import Contents
from proxy.policies.group_body import KeptGroup, OwnGroup, kept_as_own_group, own_group
from proxy.policies.key import Key, Kind
from proxy.policies.layers import Layer
from proxy.policies.sections import section_of

Wanted = dict[Key, str | None]


def to_set_direction(book: Contents, name: str, direction: Direction, section: dict[str, Any] | None) -> Wanted:
    """What to change so that one direction has a limit of Sluice's own form; None limits nothing there."""
    kept = _kept(book, name)
    numbers = tuple(one for one in kept.numbers if one != direction)
    return {_key(name): kept_as_own_group({**kept.body, direction: section}, numbers)}


def to_take_back_direction(book: Contents, name: str, direction: Direction) -> Wanted:
    """The same so that the file's value holds; a group of which nothing is said and nothing is attached to ends."""
    if book.read(_key(name)) is None:
        return {}
    kept = _kept(book, name)
    body: OwnGroup = {one: section for one, section in kept.body.items() if one != direction}
    ends = not body and (name in book.groups_of_file() or not book.is_attached(name))
    numbers = tuple(one for one in kept.numbers if one != direction)
    return {_key(name): None if ends else kept_as_own_group(body, numbers)}


def to_set_numbers(book: Contents, name: str, said: ResourceGroup) -> Wanted:
    """The same by Pulsar's tools, which say some of the four rates; what the file or Sluice's own form says stays."""
    kept = book.read(_key(name))
    if kept is None and not any(_limit(book, name, direction) for direction in DIRECTIONS):
        kept = "{}"
    if kept is None or own_group(kept) is not None:
        return _merged(book, name, said)
    rates = {field: value for field, value in msgspec.structs.asdict(said).items() if value is not None}
    return {_key(name): msgspec.json.encode(msgspec.structs.replace(read_body(kept, ResourceGroup), **rates)).decode()}


def _merged(book: Contents, name: str, said: ResourceGroup) -> Wanted:
    """A direction of which nothing is said stays the file's, if it is."""
    kept = _kept(book, name)
    body, numbers = dict(kept.body), set(kept.numbers)
    for direction, messages, size in (
        (DIRECTIONS[0], said.publishRateInMsgs, said.publishRateInBytes),
        (DIRECTIONS[1], said.dispatchRateInMsgs, said.dispatchRateInBytes),
    ):
        if messages is None and size is None:
            continue
        if body.get(direction) is None:
            numbers.add(direction)
        limit = _with(_limit(book, name, direction) or Limit(), messages, size)
        body[direction] = dict(section_of(direction, limit)) or None
    return {_key(name): kept_as_own_group(body, tuple(sorted(numbers)))}


def _with(limit: Limit, messages: int | None, size: int | None) -> Limit:
    """With other rates per second, whose burst is the default one; 0 and below mean none."""
    if messages is not None:
        limit = replace(limit, messages=rate(messages) if messages > 0 else None, peak_messages=None)
    if size is not None:
        limit = replace(limit, size=rate(size) if size > 0 else None, peak_size=None)
    return limit


def _kept(book: Contents, name: str) -> KeptGroup:
    """What is kept, in the own form, whatever form it has."""
    kept = book.read(_key(name))
    if kept is None:
        return KeptGroup("sluice", {})
    own = own_group(kept)
    if own is not None:
        return own
    body: OwnGroup = {}
    for direction in DIRECTIONS:
        value = book.layers.written(Layer.REST, (direction, Setting.RESOURCE_GROUP, name))
        if value is not None:
            body[direction] = dict(section_of(direction, value.limit)) or None
    return KeptGroup("sluice", body, tuple(body))


def _limit(book: Contents, name: str, direction: Direction) -> Limit | None:
    value = book.layers.policies.get(direction, Setting.RESOURCE_GROUP, name)
    return value.limit if value else None


def _key(name: str) -> Key:
    return Key(Kind.GROUP, "", name)
