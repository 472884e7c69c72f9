"""The changes of policies on a topic that all members read, and the rule by which one of them holds; without I/O.

Each change is a message with a Pulsar key of its own, its *slot*: the policy, and the change's id. The change carries a
*version*, one above the version that its author saw. Of the changes of one policy that are on the topic, **the one with
the greatest version holds, and of equal ones the first**. Two changes at once have the same version: the broker's order
decides, and the author of the second one sees the *conflict*.

The result depends on the messages on the topic and on their order only, and compaction changes neither for slots that
are written once. So a member that reads the compacted topic from its start gets the same result as members that heard
every message. Were slots named by the policy alone, compaction would keep the last of two changes at once, which loses.

Tombstones (messages without content) clear changes that no longer hold, and so change nothing. Superseded and losing
changes are cleared at once. A change that took a policy back is cleared after `DELETED_STAY_S`: by then no earlier
message can still arrive, as a connection's messages end with it and are not sent again.
"""

import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from fleet.messages import BadMessage
from limiter.levels import Setting
from proxy import typed_json
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
from proxy.slices import letting_go

VERSION: Final = 1
"""The version of the messages on the topic. Messages of another version are dropped."""
MOST_CHANGE: Final = 64 * 1024
"""Bytes of a message, at most."""
_LINGERING: Final = 2
"""A tenant's part of the topic, as a multiple of its part of a store: some of its changes took policies back."""
MOST_OF_ONE: Final = 32
"""Changes of one policy that are kept, at most: those of the greatest versions. A topic has more only if a client
floods it, or if as many members change one policy at once; each author clears its own change if that does not hold."""
DELETED_STAY_S: Final = 3600
"""Seconds for which a change that took a policy back stays on the topic."""
FOUNDED: Final = "founded"
"""The slot that marks a topic with a history: a policy that is not on it is not set."""
_MARK: Final = "mark "
_MOST_NAME: Final = 1000
_GREATEST: Final = 2**53
_LATEST_NS: Final = 10**9 * 253_402_300_800  # the year 10000, which no calendar here has


class BadChangeError(BadMessage):
    """A message that is no change of policies, or a change that no member would take.

    Its causes are `version`, `malformed`, `key`, `value` and `full`.
    """


class TopicChange(NamedTuple):
    """A change on the topic.

    Attributes:
        id: The change's id, unique among the changes of one policy.
        version: One above that of the change that its author saw.
        body: The policy as `proxy.policies.bodies` keeps it; None takes it back.
        by: The author.
        member: The name of the member that the author asked.
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

    A member that hears its own mark has heard all messages before it.
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
        is_partial: The topic had more changes than are kept.
    """

    def __init__(self, dropped: Counter[str], share: TenantShare = TenantShare()) -> None:  # noqa: B008 - a value
        self.is_founded = self.is_partial = False
        self._dropped = dropped
        self._room = Room(TenantShare(_LINGERING * share.policies, _LINGERING * share.size))
        self._changes: dict[PolicyKey, tuple[TopicChange, ...]] = {}

    @property
    def changes(self) -> int:
        """The number of changes that are kept."""
        return self._room.total

    @property
    def size(self) -> int:
        """About how many bytes the changes take."""
        return self._room.size

    @property
    def is_full(self) -> bool:
        """Whether there is no room for any change of an operator's limits."""
        return not self._room.holds(OPERATOR, 1, MOST_CHANGE)

    def policies(self) -> list[PolicyKey]:
        """Return the policies that have a change, those that were taken back included."""
        return list(self._changes)

    def let_go(self) -> Iterator[None]:
        """Free the changes, some in each step: the topic is read again, and nothing asks this log any more."""
        yield from letting_go(self._changes)

    def holds(self, key: PolicyKey) -> TopicChange | None:
        """Return the change of a policy that holds; None if the policy has no change."""
        changes = self._changes.get(key)
        return max(changes, key=lambda change: change.version) if changes else None

    def take(self, slot: str, message: bytes) -> tuple[PolicyKey, str] | None:
        """Take the next message of the topic.

        Args:
            slot: The message's Pulsar key.
            message: The bytes of the message; empty for a tombstone.

        Returns:
            The policy, and the id of the change; None if the message is about no policy, or dropped and counted.
        """
        try:
            return self._take(slot, message)
        except BadChangeError as error:
            self._dropped[error.cause] += 1
            return None

    def body_of(self, key: PolicyKey) -> str | None:
        """Return the body of a policy; None if it is not set."""
        change = self.holds(key)
        return None if change is None else change.body

    def propose(self, change: StoredChange, by: Principal, member: str, at_ns: int) -> list[tuple[str, bytes]]:
        """Return the messages that change a policy, in their order: the slot and content of each.

        There are none if the policy is not what it was before the change: the topic is ahead of the change's plan.

        There is one message, with two exceptions. Only a stranger's change can have the greatest version, above which
        there is no other; it is cleared first. And where there is little room, a policy is taken back by clearing all
        its changes, as a change that takes it back would need room for an hour.

        Raises:
            BadChangeError: If no member would take the message.
        """
        key, body, change_id = change.key, change.after, secrets.token_hex(8)
        if self.body_of(key) != change.before:
            return []
        earlier = self._changes.get(key, ())
        owner = owner_of(key)
        is_of_tenant = owner not in {OPERATOR, BLOCKS}
        if body is None and self._room.fullness(owner) >= (1 / _LINGERING if is_of_tenant else 15 / 16):
            return [(slot_of(key, each.id), b"") for each in earlier]
        version = 1 + max([each.version for each in earlier if each.version < _GREATEST], default=0)
        above = [(slot_of(key, each.id), b"") for each in earlier if each.version >= _GREATEST]
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
        """Return whether the change of this slot holds."""
        key, change_id = _read_slot(slot)
        change = self.holds(key)
        return change is not None and change.id == change_id

    def superseded(self, key: PolicyKey) -> list[str]:
        """Return the slots of a policy's changes that do not hold, and never will again."""
        holding = self.holds(key)
        return [slot_of(key, change.id) for change in self._changes.get(key, ()) if change is not holding]

    def garbage(self, superseded_ns: int, deleted_ns: int, most: int) -> list[str]:
        """Return slots that may be cleared.

        Args:
            superseded_ns: Nanoseconds since 1970; if all changes of a policy are older, those that do not hold go.
            deleted_ns: Nanoseconds since 1970; older changes that took a policy back go.
            most: The number of slots, at most.
        """
        slots = list[str]()
        for key, changes in self._changes.items():
            if len(slots) >= most:
                break
            if len(changes) > 1 and max(change.at_ns for change in changes) < superseded_ns:
                slots += self.superseded(key)
            elif len(changes) == 1 and changes[0].body is None and changes[0].at_ns < deleted_ns:
                slots.append(slot_of(key, changes[0].id))
        return slots[:most]

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
        self._put(key, before, others)  # as compaction would, even if the message is dropped
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
    """Leave out one change if there are too many: that of the least version, of equal ones the last."""
    if len(changes) <= MOST_OF_ONE:
        return changes
    least = min(reversed(changes), key=lambda change: change.version)
    return tuple(change for change in changes if change is not least)


def _size(key: PolicyKey, change: TopicChange) -> int:
    """Return about how many bytes a change takes."""
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
        target, layer = setting_of(key)
        if target is Setting.RESOURCE_GROUP:
            raise ValueError(f"{key.shown}: groups have a kind of their own")
        if layer is Layer.TENANT and tenant_of(target, key.name) is None:
            raise ValueError(f"{key.shown}: no tenant has it for its own")
        _, _, name = read_target(kind.value, target.value, key.name)
        if name != key.name:
            raise ValueError(f"{key.shown}: the name is written {cut(name)}")
    elif setting not in ({"tenant", "namespace"} if kind is PolicyKind.ATTACHMENT else {""}):
        raise ValueError(f"{key.shown}: there is no such setting")
    elif not key.name:
        raise ValueError(f"{key.shown}: it has no name")


def _read(change_id: str, message: bytes) -> TopicChange:
    try:
        read = typed_json.decode(message, _Content)
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
    """Raise the error of another version if the message has one: its other fields may differ."""
    try:
        version = typed_json.decode(message, _Header).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if version != VERSION:
        raise BadChangeError("version", f"version {version} is not known")
