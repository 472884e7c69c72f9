"""Changes of policies on a topic: whatever is heard, lost, compacted and read anew, all members come to the same."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from limiter.levels import Setting
from proxy.policies import room, topic_log
from proxy.policies.bodies import kept_as_own
from proxy.policies.keys import Layer, PolicyKey, PolicyKind, Principal, rate_key
from proxy.policies.room import TenantShare
from proxy.policies.store import StoredChange
from proxy.policies.topic_log import FOUNDED, MOST_CHANGE, BadChangeError, PolicyLog, founding, new_mark, slot_of

ANN = Principal("ann", "10.0.0.1")
KEY = rate_key("publish", Setting.TENANT, "acme")
KEYS = (KEY, PolicyKey(PolicyKind.BLOCK, "", "role 'a b'"))
_MEMBERS = 3
_BODIES = st.sampled_from([None, "x", "y", "z"])


class Topic:
    """Messages in the broker's order."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.oracle = PolicyLog(Counter())
        """Has heard every message."""

    def compacted(self, end: int) -> list[tuple[str, bytes]]:
        """What is left of the first messages: the last one of each slot, if it is not empty."""
        last = {slot: place for place, (slot, _) in enumerate(self.messages[:end])}
        return [each for place, each in enumerate(self.messages[:end]) if last[each[0]] == place and each[1]]


@dataclass
class Sent:
    """A message on its way."""

    slot: str
    message: bytes
    change: StoredChange | None = None
    heard: int = 0
    """How much of the topic its author had heard."""


@dataclass
class Member:
    """Hears, puts in force later, and sends what it planned by what was in force."""

    log: PolicyLog = field(default_factory=lambda: PolicyLog(Counter()))
    history: list[tuple[str, bytes]] = field(default_factory=list)
    """What it has yet to hear of the compacted topic, and then from this place on:"""
    place: int = 0
    in_step_at: int = 0
    """The place up to which it has to hear before it may send."""
    in_force: dict[PolicyKey, str | None] = field(default_factory=dict)
    on_the_way: list[Sent] = field(default_factory=list)

    @property
    def is_in_step(self) -> bool:
        return not self.history and self.place >= self.in_step_at

    def hear(self, topic: Topic, most: int) -> None:
        for _ in range(most):
            if self.history:
                self.log.take(*self.history.pop(0))
            elif self.place < len(topic.messages):
                self.log.take(*topic.messages[self.place])
                self.place += 1

    def put_in_force(self) -> None:
        if self.is_in_step:
            self.in_force = {key: self.log.body_of(key) for key in KEYS}


class Members(RuleBasedStateMachine):
    """N members of one topic."""

    def __init__(self) -> None:
        super().__init__()
        self.topic = Topic()
        self.members = [Member() for _ in range(_MEMBERS)]
        self.late: list[Sent] = []
        """What lost connections carried, and a broker may yet take."""
        self.clock = 1
        self.changed_at = dict.fromkeys(KEYS, -1)
        """Where the latest change of each is on the topic."""

    who = st.integers(0, _MEMBERS - 1)

    @rule(number=who, most=st.integers(1, 5))
    def hear(self, number: int, most: int) -> None:
        self.members[number].hear(self.topic, most)

    @rule(number=who)
    def put_in_force(self, number: int) -> None:
        self.members[number].put_in_force()

    @rule(number=who, key=st.sampled_from(KEYS), body=_BODIES)
    def change(self, number: int, key: PolicyKey, body: str | None) -> None:
        member, self.clock = self.members[number], self.clock + 1
        change = StoredChange(key, member.in_force.get(key), body)
        if not member.is_in_step or change.before == body:
            return
        proposed = member.log.propose(change, ANN, f"m{number}", self.clock)
        assert (not proposed) == (member.log.body_of(key) != change.before)
        member.on_the_way += [Sent(*each, change, member.place) for each in proposed]

    @rule(number=who, key=st.sampled_from(KEYS))
    def clear(self, number: int, key: PolicyKey) -> None:
        member = self.members[number]
        if member.is_in_step:
            member.on_the_way += [Sent(slot, b"") for slot in member.log.superseded(key)]

    @rule(number=who)
    def clear_what_was_deleted(self, number: int) -> None:
        """An hour later: what connections carried then has come, or is lost."""
        member = self.members[number]
        if member.is_in_step and not self.late and not any(each.on_the_way for each in self.members):
            member.on_the_way += [Sent(slot, b"") for slot in member.log.garbage(self.clock, self.clock, 1000)]
            while member.on_the_way:
                self.arrive(number)

    @rule(number=who)
    def arrive(self, number: int) -> None:
        member = self.members[number]
        if member.on_the_way:
            self._append(member.on_the_way.pop(0))

    @rule(number=who, is_lost=st.booleans(), end=st.integers(0, 1000))
    def connect_anew(self, *, number: int, is_lost: bool, end: int) -> None:
        """What was on the way is lost, or comes late; the topic is read from its start, compacted so far."""
        member = self.members[number]
        self.late += [] if is_lost else member.on_the_way
        place = min(end, len(self.topic.messages))
        self.members[number] = Member(
            history=self.topic.compacted(place),
            place=place,
            in_step_at=len(self.topic.messages),
            in_force=member.in_force,
        )

    @rule(which=st.integers(0, 100))
    def come_late(self, which: int) -> None:
        if self.late:
            self._append(self.late.pop(which % len(self.late)))

    def _append(self, sent: Sent) -> None:
        oracle, slot, change = self.topic.oracle, sent.slot, sent.change
        body = None if change is None else oracle.body_of(change.key)
        before = {key: oracle.body_of(key) for key in KEYS}
        self.topic.messages.append((slot, sent.message))
        oracle.take(slot, sent.message)
        if change is None:
            assert before == {key: oracle.body_of(key) for key in KEYS}  # clearing changes nothing
        elif oracle.is_held(slot):
            assert body == change.before  # of two that replace the same, the second one never holds
        else:
            assert oracle.body_of(change.key) == body
            assert sent.heard <= self.changed_at[change.key]  # another one was first
        if change is not None:
            self.changed_at[change.key] = len(self.topic.messages) - 1

    @invariant()
    def whoever_has_heard_all_says_the_same(self) -> None:
        oracle = self.topic.oracle
        wanted = {key: oracle.holds(key) for key in KEYS}
        for member in self.members:
            if not member.history and member.place == len(self.topic.messages):
                assert {key: member.log.holds(key) for key in KEYS} == wanted
        for end in (len(self.topic.messages), len(self.topic.messages) // 2):
            anew = PolicyLog(Counter())
            for each in (*self.topic.compacted(end), *self.topic.messages[end:]):
                anew.take(*each)
            assert {key: anew.holds(key) for key in KEYS} == wanted
            assert anew.changes <= oracle.changes


Members.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestMembers = Members.TestCase


def message(**more: Any) -> bytes:
    fields = {"v": 1, "version": 1, "body": "x", "who": "ann", "address": "", "member": "a", "at_ns": 5}
    return msgspec.json.encode(fields | more)


SLOT = slot_of(KEY, "0123456789abcdef")


def test_a_change_is_what_its_message_says() -> None:
    log = PolicyLog(Counter())
    change = StoredChange(KEY, None, "x")
    [proposed] = log.propose(change, ANN, "a", 5)
    taken = log.take(*proposed)
    held = log.holds(KEY)
    assert taken is not None
    assert held is not None
    assert (taken[0], held.version, held.body, held.by, held.member, held.at_ns) == (KEY, 1, "x", ANN, "a", 5)
    assert log.propose(change, ANN, "b", 6) == []


@pytest.mark.parametrize(
    ("slot", "sent", "cause"),
    [
        (SLOT, message(v=2), "version"),
        (SLOT, b'{"v": 2, "other": []}', "version"),
        (SLOT, b"\xff", "malformed"),
        (SLOT, b"[" * 100_000, "malformed"),
        (SLOT, message(body=5), "malformed"),
        (SLOT, message(version=0), "value"),
        (SLOT, message(version=2**60), "value"),
        (SLOT, message(at_ns=10**30), "value"),
        (SLOT, message(who="a\nb"), "value"),
        (SLOT, message(member="a" * 2000), "value"),
        (f"attachment tenant acme {'0' * 16}", message(body="a\nb"), "value"),
        ("", message(), "key"),
        ("publish tenant acme short", message(), "key"),
        ("publish nothing acme 0123456789abcdef", message(), "key"),
        ("publish resource_group acme 0123456789abcdef", message(), "key"),
        ("publish topic acme/shop 0123456789abcdef", message(), "key"),
        ("attachment topic acme 0123456789abcdef", message(), "key"),
        ("group  a\nb 0123456789abcdef", message(), "key"),
        ("group   0123456789abcdef", message(), "key"),
        ("group  " + "a" * 5000 + " 0123456789abcdef", message(), "key"),
    ],
)
def test_what_is_no_change_is_refused_and_counted(slot: str, sent: bytes, cause: str) -> None:
    dropped = Counter[str]()
    log = PolicyLog(dropped)
    assert log.take(slot, sent) is None
    assert dropped == {cause: 1}
    assert (log.changes, log.size, list(log.policies())) == (0, 0, [])


_SLOTS = st.one_of(
    st.text(max_size=60),
    st.builds(
        lambda kind, setting, name: f"{kind} {setting} {name} {'0' * 16}",
        st.sampled_from(PolicyKind),
        st.sampled_from(["", "tenant", "namespace", "topic", "global_topic", "subscription"]),
        st.text(max_size=30),
    ),
)
_BYTES = st.one_of(st.binary(max_size=100), st.builds(message, body=st.text(max_size=50), version=st.integers()))


@given(st.lists(st.tuples(_SLOTS, _BYTES), max_size=20))
def test_whatever_is_written_is_a_change_or_counted(sent: list[tuple[str, bytes]]) -> None:
    dropped = Counter[str]()
    log = PolicyLog(dropped)
    for slot, payload in sent:
        log.take(slot, payload)
    assert sum(dropped.values()) <= len(sent)
    assert dropped.keys() <= {"version", "malformed", "key", "value"}
    assert log.changes <= len(sent)


def test_refused_message_replaces_its_slot_as_compaction_does() -> None:
    log = PolicyLog(Counter())
    log.take(SLOT, message())
    log.take(SLOT, message(v=2))
    assert log.holds(KEY) is None


def test_more_than_a_member_keeps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_CHANGES", 2)
    dropped = Counter[str]()
    log = PolicyLog(dropped)
    for number in range(4):
        log.take(slot_of(KEY, f"{number:016x}"), message(version=number + 1))
    assert (log.changes, dropped) == (2, {"full": 2})
    log.take(slot_of(KEY, f"{0:016x}"), b"")
    log.take(slot_of(KEY, f"{5:016x}"), message(version=9))
    assert (log.changes, dropped) == (2, {"full": 2})
    monkeypatch.setattr(room, "MOST_BYTES", log.size + 100)
    monkeypatch.setattr(room, "MOST_CHANGES", 3)
    log.take(slot_of(KEY, f"{6:016x}"), message(version=10))
    assert (log.changes, dropped) == (2, {"full": 3})


def test_of_one_policy_the_greatest_are_kept_and_of_equal_ones_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_log, "MOST_OF_ONE", 3)
    dropped = Counter[str]()
    log = PolicyLog(dropped)
    slots = [slot_of(KEY, f"{number:016x}") for number in range(6)]
    for slot, version in zip(slots, (5, 2, 5, 1, 5, 7), strict=True):
        assert log.take(slot, message(version=version)) == (KEY, slot[-16:])
    assert not dropped
    held = log.holds(KEY)
    assert held is not None
    assert (log.changes, held.version, log.superseded(KEY)) == (3, 7, [slots[0], slots[2]])
    for slot in slots:
        log.take(slot, b"")
    assert (log.changes, log.size, log.holds(KEY)) == (0, 0, None)


def test_what_nobody_would_take_is_not_sent() -> None:
    log = PolicyLog(Counter())
    with pytest.raises(BadChangeError, match="more than"):
        log.propose(StoredChange(KEY, None, "x" * MOST_CHANGE), ANN, "a", 5)
    with pytest.raises(BadChangeError, match="key"):
        log.propose(StoredChange(PolicyKey(PolicyKind.GROUP, "", "a\nb"), None, "x"), ANN, "a", 5)


def test_marks_and_tombstones_of_nothing_mean_nothing_and_the_founding_lasts() -> None:
    dropped = Counter[str]()
    log = PolicyLog(dropped)
    assert log.take(new_mark(), b"") is None
    assert log.take(SLOT, b"") is None
    assert not log.is_founded
    log.take(FOUNDED, founding(5, "a"))
    assert log.is_founded
    assert not dropped
    assert new_mark() != new_mark()


def test_what_is_cleared_is_what_does_not_hold_and_what_was_taken_back_long_ago() -> None:
    log = PolicyLog(Counter())
    first, second, third = (slot_of(KEY, f"{number:016x}") for number in range(3))
    log.take(first, message(version=1, at_ns=1))
    log.take(second, message(version=2, at_ns=2, body=None))
    log.take(third, message(version=2, at_ns=3))
    assert log.superseded(KEY) == [first, third]
    assert log.garbage(3, 3, 10) == []
    assert log.garbage(4, 4, 1) == [first]
    assert log.garbage(4, 4, 10) == [first, third]
    log.take(first, b"")
    log.take(third, b"")
    assert log.garbage(9, 2, 10) == []
    assert log.garbage(9, 3, 10) == [second]
    assert log.body_of(KEY) is None


def set_by_tenant(log: PolicyLog, number: int, *, taken_back: bool) -> bool:
    """Whether a tenant's change of an ever new policy is sent; it comes back at once."""
    key = rate_key("publish", Setting.TOPIC, f"persistent://acme/shop/{number}", Layer.TENANT)
    bodies = [kept_as_own({"messages": 1}), None][: 1 + taken_back]
    before = None
    for body in bodies:
        try:
            sent = log.propose(StoredChange(key, before, body), ANN, "a", 5)
        except BadChangeError:
            return False
        for slot, message in sent:
            log.take(slot, message)
        for slot in log.superseded(key):
            log.take(slot, b"")
        before = body
    return True


@pytest.mark.parametrize("taken_back", [False, True], ids=["set", "set and taken back"])
def test_no_flood_of_a_tenant_takes_room_of_others(*, taken_back: bool) -> None:
    log = PolicyLog(Counter(), TenantShare(10, 10**6))
    done = [set_by_tenant(log, number, taken_back=taken_back) for number in range(100)]
    assert all(done) == taken_back, "what was taken back makes room"
    assert log.changes <= 20
    if not taken_back:
        key = rate_key("publish", Setting.TENANT, "acme", Layer.TENANT)
        with pytest.raises(BadChangeError, match=r"full: .* tenant acme has 20 policies"):
            log.propose(StoredChange(key, None, "1"), ANN, "a", 5)
    for change in (StoredChange(KEY, None, "1"), StoredChange(PolicyKey(PolicyKind.BLOCK, "", "role 'x'"), None, "{}")):
        assert log.propose(change, ANN, "a", 5)


def test_where_limits_have_filled_the_topic_it_takes_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_CHANGES", 2)
    dropped = Counter[str]()
    log = PolicyLog(dropped)
    for number in range(3):
        log.take(slot_of(rate_key("publish", Setting.TENANT, f"t{number}"), "0" * 16), message())
    assert (log.changes, dropped) == (2, {"full": 1})
    with pytest.raises(BadChangeError, match="full"):
        log.propose(StoredChange(rate_key("publish", Setting.PROXY, ""), None, "1"), ANN, "a", 5)
    block = PolicyKey(PolicyKind.BLOCK, "", "role 'x'")
    ((slot, sent),) = log.propose(StoredChange(block, None, "{}"), ANN, "a", 5)
    assert log.take(slot, sent) == (block, slot[-16:])
    assert log.body_of(block) == "{}"


@pytest.mark.parametrize("setting", [Setting.ROLE, Setting.PROXY, Setting.PRODUCER])
def test_what_no_tenant_owns_has_no_tenants_slot(setting: Setting) -> None:
    dropped = Counter[str]()
    key = rate_key("publish", setting, "" if setting is Setting.PROXY else "x", Layer.TENANT)
    assert PolicyLog(dropped).take(slot_of(key, "0" * 16), message()) is None
    assert dropped == {"key": 1}
