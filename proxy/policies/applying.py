"""What to write at run time so that what is in force equals another policy set.

Where the proxy's own file says otherwise, only a run-time value can hide it. Where nothing is to be limited although
the file limits, that is a value that limits nothing: it stays until the file says the same and it is taken back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from limiter.levels import Setting
from limiter.rates import DIRECTIONS, Direction, Limit
from proxy.policies.bodies import NO_LIMIT, kept_as_own, kept_as_pulsar_s
from proxy.policies.book import Book
from proxy.policies.dynamic import place_of
from proxy.policies.group_body import OwnGroup, kept_as_own_group
from proxy.policies.key import Key, Kind, rate_key
from proxy.policies.layers import Layer, Place
from proxy.policies.policy_set import MEMBERS, Member, PolicySet, attached_by, limit_at, path_of
from proxy.policies.sections import section_of


@dataclass(slots=True)
class Plan:
    """What to change.

    Args:
        wanted: New bodies; None takes one back.
        hidden: The configuration's keys that the proxy's own file has, and that a value now hides that limits nothing.
    """

    wanted: dict[Key, str | None] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)


def plan(book: Book, wanted: PolicySet, held: PolicySet) -> Plan:
    """The changes that make `wanted` hold; none where it holds already.

    Args:
        book: Where it is to hold. For 100,000 limits a thread may do this, while no change is under way there.
        wanted: What is to hold.
        held: What is in force there.
    """
    made = Plan()
    for place in sorted(wanted.values.keys() | held.values.keys()):
        is_other = limit_at(wanted, place) != limit_at(held, place)
        if is_other and place[1] is not Setting.RESOURCE_GROUP:
            _plan_value(book, made, place, limit_at(wanted, place))
    _plan_groups(book, made, wanted, held)
    for member in MEMBERS:
        _plan_attached(book, made, member, _groups_by_name(wanted, member))
    return made


def _plan_value(book: Book, made: Plan, place: Place, wanted: Limit | None) -> None:
    made.wanted.update(_taken_back(book, place))
    file = _file_limit(book, place)
    if file == wanted:
        return
    key = rate_key(*place)
    if wanted is None:
        made.wanted[key] = kept_as_pulsar_s(NO_LIMIT[key.kind])
        made.hidden.append(".".join(path_of(place)))
    else:
        made.wanted[key] = kept_as_own(section_of(place[0], wanted))


def _taken_back(book: Book, place: Place) -> Iterator[tuple[Key, None]]:
    """Everything that is written at a place but by the file."""
    for layer in (Layer.GLOBAL, Layer.REST):
        if book.layers.written(layer, place) is not None:
            yield rate_key(*place, is_global=layer is Layer.GLOBAL), None
    for name in book.dynamic:
        if place_of(name) == place:
            yield Key(Kind.DYNAMIC, "", name), None


def _file_limit(book: Book, place: Place) -> Limit | None:
    value = book.layers.written(Layer.FILE, place)
    return value.limit if value and value.limit else None


def _plan_groups(book: Book, made: Plan, wanted: PolicySet, held: PolicySet) -> None:
    names = {place[2] for place in (*wanted.values, *held.values) if place[1] is Setting.RESOURCE_GROUP}
    known = book.groups()
    for name in sorted(names | wanted.groups | known):
        is_there = name in wanted.groups or name in held.lasting
        if _limits_of(wanted, name) == _limits_of(held, name) and is_there == (name in known):
            continue
        key = Key(Kind.GROUP, "", name)
        body = _group_body(book, made, name, _limits_of(wanted, name))
        if body or (is_there and name not in held.lasting):
            made.wanted[key] = kept_as_own_group(body)
        elif book.read(key) is not None:
            made.wanted[key] = None


def _group_body(book: Book, made: Plan, name: str, wanted: Mapping[Direction, Limit | None]) -> OwnGroup:
    body: OwnGroup = {}
    for direction in DIRECTIONS:
        place: Place = (direction, Setting.RESOURCE_GROUP, name)
        limit = wanted[direction]
        if limit == _file_limit(book, place):
            continue
        body[direction] = dict(section_of(direction, limit)) if limit else None
        if limit is None:
            made.hidden.append(".".join(path_of(place)))
    return body


def _limits_of(policies: PolicySet, name: str) -> dict[Direction, Limit | None]:
    return {direction: limit_at(policies, (direction, Setting.RESOURCE_GROUP, name)) for direction in DIRECTIONS}


def _plan_attached(book: Book, made: Plan, member: Member, wanted: Mapping[str, str]) -> None:
    """An empty group is what hides the file's."""
    file = {name: one.group for (of, name), one in attached_by(book.file).items() if of == member}
    at_run_time = book.attached(member)
    held = {**file, **at_run_time}
    for name in sorted(held.keys() | wanted.keys()):
        group = wanted.get(name, "")
        if group == held.get(name, ""):
            continue
        is_said = group == file.get(name, "")
        made.wanted[Key(Kind.ATTACHMENT, member, name)] = None if is_said else group
        if not is_said and not group:
            made.hidden.append(f"resource group of {member} {name}")


def _groups_by_name(policies: PolicySet, member: Member) -> dict[str, str]:
    return {name: one.group for (of, name), one in policies.attached.items() if of == member}
