"""The changes of policies on a topic that all members read: which of them holds, by one rule, without I/O.

Each change is a message with a Pulsar key of its own, its *slot*: what it sets, and which change it is. It carries a
*version*, one above that which its author saw. Of the changes of one policy that are on the topic, **the one with the
greatest version holds, and of equal ones the first**: of two at once, which have the same version, the broker's order
decides, and the other's author sees the *conflict*.

That is a function of the messages that are there and of their order, and compaction changes neither for slots that
are written once. So whoever reads a compacted topic from its start comes to the same as those who have heard every
message; were slots named by the policy alone, compaction would keep the last of two at once, which is the losing one.

What does not hold any more is cleared by tombstones (messages without content), which therefore change nothing:
superseded and losing changes at once, and the change that took a policy back after `DELETED_STAY_S`, when nothing of
before can be on its way any more: what a connection carried ends with it, and is not sent again.
"""

import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from limiter.levels import Setting
from proxy.config.sources import cut
from proxy.policies.keys import (
    BLOCKS,
    LONGEST,
    OPERATOR,
    Layer,
    PolicyKey,
    PolicyKind,
    Principal,
    owner_of,
    read_target,
    setting_of,
    tenant_of,
)
from proxy.policies.room import Room, TenantShare, size_of
from proxy.policies.store import StoredChange

VERSION: Final = 1
"""The version of the messages on the topic. Messages of another version are dropped."""
MOST_CHANGE: Final = 64 * 1024
"""Bytes of a message, at most."""
_LINGERING: Final = 2
"""A tenant's part of the topic, as a multiple of its part of a store: some of its changes say what was taken back."""
MOST_OF_ONE: Final = 32
"""Changes of one policy that are kept, at most: those of the greatest versions. More are there only if somebody floods
the topic, or so many members change the same at once; each author clears its own that does not hold."""
DELETED_STAY_S: Final = 3600
"""Seconds that it is kept that a policy was taken back."""
FOUNDED: Final = "founded"
"""The slot that says that the topic has a history: what is not on it is not set."""
_MARK: Final = "mark "
_MOST_NAME: Final = 1000
_GREATEST: Final = 2**53
_LATEST_NS: Final = 10**9 * 253_402_300_800  # the year 10000, which no calendar here has


class BadChangeError(ValueError):
    """A message that is no change of policies, or a change that nobody would take.

    Args:
        cause: Why, as a label of metrics: `version`, `malformed`, `key`, `value` or `full`.
        detail: What is wrong, for people.
    """

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause


class TopicChange(NamedTuple):
    """A change on the topic.

    Attributes:
        id: Tells it from all others of the same policy.
        version: One above that of the change that its author saw.
        body: The policy as `proxy.policies.bodies` keeps it; None takes it back.
        by: The principal who asked for it, and the name of the member that was asked.
        at_ns: When it was sent, by that member's clock: nanoseconds since 1970.
    """

    id: str
    version: int
    body: str | None
    by: Principal
    member: str
    at_ns: int


class _Content(msgspec.Struct, frozen=True):
    v: int
    version: int
    body: str | None
    who: str
    address: str
    member: str
    at_ns: int


class _Header(msgspec.Struct, frozen=True):
    v: int


def slot_of(key: PolicyKey, change_id: str) -> str:
    """Return the Pulsar key of a change."""
    return f"{key.kind.value} {key.setting} {key.name} {change_id}"


def new_mark() -> str:
    """Return the slot of a *mark*, a message without content that changes nothing; no other message has this slot.

    A member that hears its own mark has heard everything that was on the topic before it.
    """
    return _MARK + secrets.token_hex(8)


def founding(at_ns: int, member: str) -> bytes:
    """Return the content of the slot `FOUNDED`."""
    return msgspec.json.encode(_Content(VERSION, 1, None, "", "", member, at_ns))


class PolicyLog:
    """The state of the policy topic, as read from its start.

    Args:
        dropped: Counts messages that are no changes, by cause.
        share: The part of each tenant in a store.

    Attributes:
        is_founded: Whether the topic has a history.
        is_partial: More was there than is kept.
    """

    def __init__(self, dropped: Counter[str], share: TenantShare = TenantShare()) -> None:  # noqa: B008 - a value
        self.is_founded = self.is_partial = False
        self._dropped = dropped
        self._room = Room(TenantShare(_LINGERING * share.policies, _LINGERING * share.size))
        self._changes: dict[PolicyKey, tuple[TopicChange, ...]] = {}

    @property
    def changes(self) -> int:
        """How many changes are kept."""
        return self._room.total

    @property
    def size(self) -> int:
        """The bytes that these take, about."""
        return self._room.size

    @property
    def is_full(self) -> bool:
        """Whether there is no room for any change of an operator's limits."""
        return not self._room.holds(OPERATOR, 1, MOST_CHANGE)

    def policies(self) -> Iterator[PolicyKey]:
        """Yield the policies of which anything is said, those that were taken back included."""
        yield from self._changes

    def holds(self, key: PolicyKey) -> TopicChange | None:
        """Return the change of a policy that holds; None if nothing is said of it."""
        found = self._changes.get(key)
        return max(found, key=lambda change: change.version) if found else None

    def take(self, slot: str, message: bytes) -> tuple[PolicyKey, str] | None:
        """Take the next message of the topic.

        Args:
            slot: Its Pulsar key.
            message: The bytes of the message; empty for a tombstone.

        Returns:
            The policy that it is about, and the change; None if it is about none, or dropped and counted.
        """
        try:
            return self._take(slot, message)
        except BadChangeError as error:
            self._dropped[error.cause] += 1
            return None

    def said(self, key: PolicyKey) -> str | None:
        """Return what a policy is; None if it is not set."""
        held = self.holds(key)
        return None if held is None else held.body

    def propose(self, change: StoredChange, by: Principal, member: str, at_ns: int) -> list[tuple[str, bytes]]:
        """Return the messages that change a policy, in their order: the slot of each, and what it carries.

        None at all if the policy is not what it was before the change: who planned it did not know yet what was heard.

        It is one message, with two exceptions for what only strangers bring about. What has the greatest version that
        there is, above which no other can be, is cleared before. And where there is little room, a policy is taken back
        by clearing all that is said of it, as to say that it was takes as much for an hour.

        Raises:
            BadChangeError: If no member would take the message.
        """
        key, body, change_id = change.key, change.after, secrets.token_hex(8)
        if self.said(key) != change.before:
            return []
        known = self._changes.get(key, ())
        owner = owner_of(key)
        is_of_tenant = owner not in {OPERATOR, BLOCKS}
        if body is None and self._room.fullness(owner) >= (1 / _LINGERING if is_of_tenant else 15 / 16):
            return [(slot_of(key, each.id), b"") for each in known]
        version = 1 + max([each.version for each in known if each.version < _GREATEST], default=0)
        above = [(slot_of(key, each.id), b"") for each in known if each.version >= _GREATEST]
        content = _Content(VERSION, version, body, by.name[:_MOST_NAME], by.address[:_MOST_NAME], member, at_ns)
        new = TopicChange(change_id, version, body, by, member, at_ns)
        if problem := self._room.problem(owner, 1, _size(key, new)):
            raise BadChangeError("full", f"{key.shown}: {problem}")
        slot, message = slot_of(key, change_id), msgspec.json.encode(content)
        if len(message) + len(slot.encode()) > MOST_CHANGE:
            raise BadChangeError("value", f"{key.shown}: the body has more than {MOST_CHANGE // 1024 - 8} KiB")
        _read_slot(slot)
        _read(change_id, message)
        return [*above, (slot, message)]

    def is_held(self, slot: str) -> bool:
        """Return whether the change of this slot is one that holds."""
        key, change_id = _read_slot(slot)
        held = self.holds(key)
        return held is not None and held.id == change_id

    def superseded(self, key: PolicyKey) -> list[str]:
        """Return the slots of a policy that do not hold, and never will again."""
        held = self.holds(key)
        return [slot_of(key, change.id) for change in self._changes.get(key, ()) if change is not held]

    def garbage(self, superseded_ns: int, deleted_ns: int, most: int) -> list[str]:
        """Return slots that may be cleared.

        Args:
            superseded_ns: Moment; of a policy whose changes are all older, those that do not hold are removed.
            deleted_ns: Moment; older changes that took a policy back are removed.
            most: How many, at most.
        """
        found = list[str]()
        for key, changes in self._changes.items():
            if len(found) >= most:
                break
            if len(changes) > 1 and max(change.at_ns for change in changes) < superseded_ns:
                found += self.superseded(key)
            elif len(changes) == 1 and changes[0].body is None and changes[0].at_ns < deleted_ns:
                found.append(slot_of(key, changes[0].id))
        return found[:most]

    def _take(self, slot: str, message: bytes) -> tuple[PolicyKey, str] | None:
        if slot.startswith(_MARK):
            return None
        if slot == FOUNDED:
            self.is_founded = False
            if message:
                _read("", message)
                self.is_founded = True
            return None
        key, change_id = _read_slot(slot)
        before = self._changes.get(key, ())
        others = tuple(change for change in before if change.id != change_id)
        self._put(key, before, others)  # as compaction would, whatever comes
        if message:
            change = _read(change_id, message)
            if key.kind is PolicyKind.ATTACHMENT and not _is_name(change.body or ""):
                raise BadChangeError("value", "the group's name is too long, or not in one line")
            if not self._room.holds(owner_of(key), 1, _size(key, change)):
                self.is_partial = True
                raise BadChangeError("full", "more is on the topic than a member keeps")
            self._put(key, others, _greatest((*others, change)))
        elif len(others) == len(before):
            return None
        return key, change_id

    def _put(self, key: PolicyKey, before: tuple[TopicChange, ...], after: tuple[TopicChange, ...]) -> None:
        size = sum(_size(key, each) for each in after) - sum(_size(key, each) for each in before)
        self._room.add(owner_of(key), len(after) - len(before), size)
        if after:
            self._changes[key] = after
        else:
            self._changes.pop(key, None)


def _greatest(changes: tuple[TopicChange, ...]) -> tuple[TopicChange, ...]:
    """Leave out one if these are too many: that of the least version, of equal ones the last."""
    if len(changes) <= MOST_OF_ONE:
        return changes
    least = min(reversed(changes), key=lambda change: change.version)
    return tuple(change for change in changes if change is not least)


def _size(key: PolicyKey, change: TopicChange) -> int:
    """Return the bytes that a change takes, about."""
    by = change.by
    return size_of(key.name, change.body) + len(by.name) + len(by.address) + len(change.member)


def _read_slot(slot: str) -> tuple[PolicyKey, str]:
    kind, _, rest = slot.partition(" ")
    setting, _, rest = rest.partition(" ")
    name, _, change_id = rest.rpartition(" ")
    if not (len(change_id) == 16 and change_id.isascii() and change_id.isalnum()):
        raise BadChangeError("key", "it does not end in the 16 letters and digits of a change")
    if len(name) > LONGEST or not name.isprintable():
        raise BadChangeError("key", "the name is too long, or not in one line")
    try:
        key = PolicyKey(PolicyKind(kind), setting, name)
        _check(key)
    except ValueError as error:
        raise BadChangeError("key", str(error)) from None
    return key, change_id


def _check(key: PolicyKey) -> None:
    kind, setting = key.kind, key.setting
    if kind in {PolicyKind.PUBLISH, PolicyKind.DISPATCH, PolicyKind.SUBSCRIBE}:
        place, layer = setting_of(key)
        if place is Setting.RESOURCE_GROUP:
            raise ValueError(f"{key.shown}: groups have a kind of their own")
        if layer is Layer.TENANT and tenant_of(place, key.name) is None:
            raise ValueError(f"{key.shown}: no tenant has it for its own")
        found = read_target(kind.value, place.value, key.name)
        if found[2] != key.name:
            raise ValueError(f"{key.shown}: the name is written {cut(found[2])}")
    elif setting not in ({"tenant", "namespace"} if kind is PolicyKind.ATTACHMENT else {""}):
        raise ValueError(f"{key.shown}: there is no such setting")
    elif not key.name:
        raise ValueError(f"{key.shown}: it has no name")


def _read(change_id: str, message: bytes) -> TopicChange:
    try:
        read = msgspec.json.decode(message, type=_Content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _check_version(message)
        raise BadChangeError("malformed", str(error)) from None
    if read.v != VERSION:
        raise BadChangeError("version", f"version {read.v} is not known")
    names = (read.who, read.address, read.member)
    if not (0 < read.version <= _GREATEST and 0 <= read.at_ns < _LATEST_NS):
        raise BadChangeError("value", "a number is out of bounds")
    if not all(map(_is_name, names)):
        raise BadChangeError("value", "a name is too long, or not in one line")
    return TopicChange(change_id, read.version, read.body, Principal(read.who, read.address), read.member, read.at_ns)


def _is_name(text: str) -> bool:
    return len(text) <= _MOST_NAME and text.isprintable()


def _check_version(message: bytes) -> None:
    """Raise the error of another version if the message says that it has one: its other fields may be other ones."""
    try:
        version = msgspec.json.decode(message, type=_Header).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if version != VERSION:
        raise BadChangeError("version", f"version {version} is not known")
