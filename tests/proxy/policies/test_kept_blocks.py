"""Blocks that are kept: on disk before they are in force, audited, there again after a restart."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from limiter.policies import Policies
from proxy import block_rules as rules_module
from proxy.block_rules import Key, Kind, Rule, TooManyRulesError, read_key
from proxy.blocking.blocklist import Blocklist, EndedByRule, LookAtSessions, Order
from proxy.counters import Counters
from proxy.observe.connection import Connection
from proxy.policies.bodies import BodyError
from proxy.policies.held import ValueBefore, read
from proxy.policies.kept_blocks import BlockDesk, BlockOutcome, KeptBlocks, body, kept_key
from proxy.policies.keys import PolicyKey, PolicyKind, Principal
from proxy.policies.layers import FilePolicies
from proxy.policies.service import Around, PolicyService
from proxy.policies.store import Store, StoredChange, StoreError

ANN = Principal("ann", "10.0.0.1")
ROLE = read_key("role", "billing")
PRODUCER = read_key("producer", "p", topic="a/b/c")

_BLOCKER = """
import asyncio, sys
from pathlib import Path
from proxy.policies.keys import Principal
from tests.proxy.policies.test_kept_blocks import run_of
from proxy.block_rules import read_key

with run_of(Path(sys.argv[1])) as run:
    for number in range(1000):
        asyncio.run(run.desk.block(read_key("role", f"r{number}"), "", Principal("ann", "")))
        print(number, flush=True)
"""


class Session:
    """Notes what is on disk whenever a rule ends something."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.seen: list[str | None] = []

    def rules_added(self, look: LookAtSessions) -> Iterator[None]:
        for key, (rule, *_) in look.rules.items():
            self.seen.append(self.run.store.read(kept_key(key)))
            self.run.blocklist.ended(rule, Connection(1))
        yield


class Run:
    """One run of a proxy, as far as blocks go."""

    def __init__(self, store: Store, file_rules: list[Rule]) -> None:
        self.store, self.session, self.around = store, Session(self), list[str]()
        self.blocklist = Blocklist(file_rules, Counters(), [self.session], lambda: 1000)
        kept = KeptBlocks(self.blocklist)
        around = Around(
            self._before,
            lambda _changes, _now: self.around.append("after"),
            handlers={PolicyKind.BLOCK: kept},
        )
        self.service = PolicyService(Policies(), FilePolicies({}, {}, {}), store, around, lambda: 7)
        self.desk = BlockDesk(self.service, kept)

    def _before(self) -> tuple[int, int]:
        self.around.append("before")
        return 0, 0

    def block(self, key: Key, reason: str = "") -> BlockOutcome:
        return asyncio.run(self.desk.block(key, reason, ANN))

    def unblock(self, key: Key) -> BlockOutcome:
        return asyncio.run(self.desk.unblock(key, ANN))

    def rules(self) -> list[Rule]:
        return self.blocklist.rules.all()


@contextlib.contextmanager
def run_of(path: Path | None = None, file_rules: list[Rule] | None = None) -> Iterator[Run]:
    store = Store(path)
    try:
        with capture_logs():
            yield Run(store, file_rules or [])
    finally:
        store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policies.db"


def test_a_block_is_on_disk_before_it_ends_anything() -> None:
    with run_of() as run:
        outcome = run.block(ROLE, "too loud")
        assert (outcome.rule, outcome.ended) == (Rule(ROLE, "too loud", 1000, "rest"), EndedByRule(1, 0))
        assert run.session.seen == [body(ROLE, Order("too loud", 1000))]
        assert run.around == [], "no limit changes"


async def test_blocks_of_the_process_with_the_store_are_followed() -> None:
    with run_of() as run:
        kept = body(ROLE, Order("too loud", 1000))
        run.service.follow(StoredChange(kept_key(ROLE), None, kept), ANN)
        run.service.follow(StoredChange(kept_key(PRODUCER), "a block that never came here", None), ANN)
        run.service.follow(StoredChange(kept_key(PRODUCER), None, body(PRODUCER, Order("", 1001))), ANN)
        run.service.follow(StoredChange(kept_key(ROLE), kept, None), ANN)
        await run.service.close()
        assert run.rules() == [Rule(PRODUCER, "", 1001, "rest")]
        assert len(run.session.seen) == 2


def test_blocks_are_there_after_a_restart_until_they_are_taken_back(path: Path) -> None:
    with run_of(path) as run:
        run.block(ROLE, "too loud")
        run.block(PRODUCER)
    with run_of(path) as run:
        assert run.rules() == [Rule(PRODUCER, "", 1000, "rest"), Rule(ROLE, "too loud", 1000, "rest")]
        assert run.unblock(ROLE).rule == Rule(ROLE, "too loud", 1000, "rest")
    with run_of(path) as run:
        assert [rule.key for rule in run.rules()] == [PRODUCER]


def test_what_is_lifted_stays_lifted_after_a_restart_until_it_is_blocked_again(path: Path) -> None:
    file = [Rule(ROLE, "from the file")]
    with run_of(path, file) as run:
        run.unblock(ROLE)
    with run_of(path, file) as run:
        assert (run.rules(), [rule.key for rule in run.blocklist.lifted()]) == ([], [ROLE])
        run.block(ROLE)
        assert list(run.store.policies()) == []
    with run_of(path, file) as run:
        assert run.rules() == [Rule(ROLE, "from the file", 1000, "file")]


def test_what_is_lifted_is_forgotten_when_it_leaves_the_file(path: Path) -> None:
    with run_of(path, [Rule(ROLE)]) as run:
        run.unblock(ROLE)
    with run_of(path) as run:
        asyncio.run(run.desk.forget_needless())
        assert run.store.audited(1)[0].who == "file"
        assert run.session.seen == []
    with run_of(path, [Rule(ROLE)]) as run:
        assert [rule.key for rule in run.rules()] == [ROLE]


def test_who_blocked_and_unblocked_what_is_audited() -> None:
    with run_of() as run:
        run.block(PRODUCER, "too loud")
        run.block(PRODUCER, "too loud")
        run.unblock(PRODUCER)
        run.unblock(PRODUCER)
        last, first = run.store.audited(10)
    kept = body(PRODUCER, Order("too loud", 1000))
    key = kept_key(PRODUCER)
    assert [(audited.who, audited.address, audited.change) for audited in (first, last)] == [
        ("ann", "10.0.0.1", StoredChange(key, None, kept)),
        ("ann", "10.0.0.1", StoredChange(key, kept, None)),
    ]
    assert str(key) == "block producer 'p' in persistent://a/b/c"
    assert [
        read(str(audited.change.held)) for audited in (first, last) if isinstance(audited.change, StoredChange)
    ] == [
        [],
        [ValueBefore("block", "producer", "p", text="too loud", origin="rest")],
    ]


def test_said_again_it_changes_nothing_and_says_what_holds() -> None:
    with run_of() as run:
        run.block(ROLE, "too loud")
        again = run.block(ROLE)
        assert (again.rule, again.ended) == (Rule(ROLE, "too loud", 1000, "rest"), EndedByRule(0, 0))
        assert run.unblock(PRODUCER).rule is None


def test_a_full_list_refuses_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_module, "MOST_RULES", 1)
    with run_of() as run:
        run.block(ROLE)
        with pytest.raises(TooManyRulesError):
            run.block(PRODUCER)
        assert [key for key, _ in run.store.policies()] == [kept_key(ROLE)]
        assert len(run.store.audited(10)) == 1
        run.unblock(ROLE)
        assert run.block(PRODUCER).rule is not None


def test_a_disk_that_takes_nothing_blocks_nobody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("disk is full")

    with run_of(path) as run:
        monkeypatch.setattr(run.store, "write", full)
        with pytest.raises(StoreError):
            run.block(ROLE)
        assert (run.rules(), run.session.seen) == ([], [])


async def test_two_at_once_are_one_block_and_one_repetition() -> None:
    with run_of() as run:
        outcomes = await asyncio.gather(run.desk.block(ROLE, "x", ANN), run.desk.block(ROLE, "x", ANN))
        assert [outcome.ended for outcome in outcomes] == [EndedByRule(1, 0), EndedByRule(0, 0)]
        assert outcomes[0].rule == outcomes[1].rule


def test_killed_at_any_moment_what_was_told_is_blocked_after_the_next_start(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _BLOCKER, str(path)], stdout=subprocess.PIPE, text=True) as blocker:
        assert blocker.stdout is not None
        for line in blocker.stdout:
            if int(line) >= 10:
                blocker.send_signal(signal.SIGKILL)
                break
        last_number = max([10, *(int(line) for line in blocker.stdout.read().splitlines())])
    with run_of(path) as run:
        names = {rule.key.name for rule in run.rules()}
    assert {f"r{number}" for number in range(last_number + 1)} <= names
    assert len(names) <= last_number + 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "the body is not a KeptBlock: "),
        ('{"kind": "user", "name": "u"}', "'user' cannot be blocked"),
        ('{"kind": "role", "name": "other"}', "the body is that of block role 'other'"),
        ('{"kind": "role", "name": "billing", "reason": "two\\nlines"}', "write the reason in one line"),
    ],
)
def test_a_body_that_is_none_or_another_s_is_refused_at_the_start(text: str, problem: str) -> None:
    with pytest.raises(BodyError) as refused:
        KeptBlocks(Blocklist([], Counters(), [])).load(kept_key(ROLE), text)
    assert problem in str(refused.value)


def test_without_a_handler_a_block_is_refused() -> None:
    with contextlib.closing(Store(None)) as store:
        service = PolicyService(
            Policies(), FilePolicies({}, {}, {}), store, Around(lambda: (0, 0), lambda _changes, _now: None)
        )
        with pytest.raises(BodyError, match="blocks are not kept here"):
            asyncio.run(service.change({PolicyKey(PolicyKind.BLOCK, "", "x"): "{}"}, ANN))


NAMES = st.text(st.sampled_from("ab'\" \\ni"), min_size=1, max_size=8)
KEYS = st.builds(
    Key,
    st.sampled_from([Kind.PRODUCER, Kind.CONSUMER]),
    NAMES,
    st.sampled_from(["", "a/b", "persistent://a/b/c"]),
)


@given(KEYS, KEYS)
def test_no_two_blocks_are_kept_under_one_key(key: Key, other: Key) -> None:
    assert (kept_key(key) == kept_key(other)) == (key == other)


@given(KEYS, st.integers(0, 2**62), st.booleans())
def test_what_is_kept_is_read_as_it_was(key: Key, since_ns: int, lifts: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    blocklist = Blocklist([Rule(key)], Counters(), [])
    KeptBlocks(blocklist).load(kept_key(key), body(key, Order("why", since_ns, lifts)))
    expected = [] if lifts else [Rule(key, "why", since_ns, "rest")]
    assert blocklist.rules.all() == expected
