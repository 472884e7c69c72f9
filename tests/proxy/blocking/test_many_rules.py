"""Many rules at once, over many sessions: no turn of the loop is long, no list of sessions is kept for each rule.

What a turn does is counted in calls of functions, as in `tests.proxy.admin.test_longest_turn`.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.assembly import ConfigSource, Proxy
from proxy.block_rules import MOST_RULES, Key, Kind, Rule, read_key
from proxy.blocking.blocklist import MOST_RULES_LOGGED, Blocklist, LookAtSessions, Order
from proxy.config.model import load_config
from proxy.counters import Counters
from proxy.kicks import KickChoice, KickEffect
from proxy.observe.connection import Connection
from proxy.policies.kept_blocks import body, kept_key
from proxy.policies.keys import PolicyKey, Principal
from proxy.slices import AT_ONCE, Slices, Work
from tests.proxy.admin.test_longest_turn import MOST_CALLS, CountingLoop
from tests.proxy.blocks import block, unblock
from tests.proxy.conversation import BROKER, World
from tests.proxy.wire import OTHER_TOPIC, TOPIC, connect, producer, producer_success

MANY = 500
"""Sessions."""
LOOKED_AT = AT_ONCE[Work.BLOCKS] * 20
"""Sessions that are looked at in a turn, at most."""


class Session:
    """A session without a client; it notes that it was looked at, by this version or by an earlier one."""

    looks = 0

    def rules_added(self, _look: LookAtSessions) -> Iterator[None]:
        Session.looks += 1
        yield from ()

    def rule_added(self, _rule: Rule, _ended: object) -> Iterator[None]:
        Session.looks += 1
        yield from ()

    def kick(self, _kick: KickChoice, _effect: KickEffect) -> Iterator[None]:
        yield from ()


def blocks(count: int, reason: str = "") -> str:
    lines = [f"  - {{address: 10.{n // 250}.{n % 250}.7, reason: '{reason}'}}\n" for n in range(count)]
    return "blocks:\n" + "".join(lines) if count else "blocks: []\n"


async def _until_done(slices: Slices, *works: Work) -> None:
    while any(map(slices.waiting, works)):  # noqa: ASYNC110 - a turn at a time
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("before", "after", "looks"),
    [
        (blocks(MOST_RULES), blocks(MOST_RULES), 0),
        (blocks(0), blocks(MOST_RULES), MANY),
        (blocks(MOST_RULES), blocks(0), 0),
        (blocks(MOST_RULES), blocks(MOST_RULES, "other"), MANY),
    ],
    ids=["unchanged", "new", "gone", "with another reason"],
)
def test_reload_of_many_blocks_makes_no_turn_long(tmp_path: Path, before: str, after: str, looks: int) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{before}")
    loop = CountingLoop()

    async def reload() -> None:
        proxy = Proxy(ConfigSource(file, lambda: load_config(file, {})))
        proxy.engine.sessions.update(Session() for _ in range(MANY))
        file.write_text(f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{after}")
        Session.looks = 0
        await asyncio.sleep(0)
        loop.is_counting = True
        with capture_logs() as lines:
            outcome = await proxy.reloader.reload("SIGHUP")
            await _until_done(proxy.engine.slices, Work.BLOCKS, Work.MEMORY)
        loop.is_counting = False
        assert outcome.problems == ()
        assert len(proxy.engine.blocklist.rules) == after.count("address")
        assert Session.looks == looks
        assert len(lines) <= 2 * MOST_RULES_LOGGED
        await proxy.stop()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(reload())
    assert 0 < loop.longest <= MOST_CALLS


def test_rules_that_come_by_and_by_share_looks(make_world: Callable[..., World]) -> None:
    """As by `sluice apply`, or by a fleet's topic: twenty in each turn."""
    world = make_world(max_connections=MANY)
    world.engine.sessions.update(Session() for _ in range(10 * LOOKED_AT))
    waiting = list[int]()

    def put_some(first: int) -> None:
        for number in range(first, first + 20):
            world.engine.blocklist.put(Key(Kind.ROLE, f"r{number}"), Order("spam", 1), quietly=True)
        if first + 20 < 400:
            world.loop.call_soon(put_some, first + 20)

    looks = [Session.looks]

    def turned() -> None:
        waiting.append(world.engine.slices.waiting(Work.BLOCKS))
        looks.append(Session.looks)

    world.loop.turned = turned
    world.loop.run(put_some, 0)
    world.engine.sessions.clear()
    assert len(world.engine.blocklist.rules) == 400
    assert max(waiting) == 1
    assert max(after - before for before, after in pairwise(looks)) <= LOOKED_AT
    assert looks[-1] - looks[0] <= 4 * 10 * LOOKED_AT


class Looks:
    """A blocklist whose looks at sessions go on step by step."""

    def __init__(self, file: list[Rule], count: int = 3) -> None:
        self.pieces: list[tuple[Iterator[None], Callable[[], None]]] = []
        self.sessions = [Client(number, self) for number in range(count)]
        self.blocklist = Blocklist(file, Counters(), self.sessions, in_slices=lambda *piece: self.pieces.append(piece))

    def put(self, key: Key, order: Order | None) -> Any:
        return self.blocklist.put(key, order)

    def go_on(self) -> None:
        while self.pieces:
            units, then = self.pieces.pop(0)
            for _ in units:
                assert len(self.pieces) == 0, "one look at a time"
            then()

    def reload(self, rules: list[Rule]) -> None:
        change = self.blocklist.compare(rules)
        self.blocklist.lay(change)
        self.go_on()
        for _ in self.blocklist.laid(change):
            pass


class Client(Session):
    """A session of a client with an address of its own."""

    def __init__(self, number: int, looks: Looks) -> None:
        self.number, self._looks, self.is_over = number, looks, False

    def rules_added(self, look: LookAtSessions) -> Iterator[None]:
        rule = self._looks.blocklist.rules.of_client(f"10.0.0.{self.number}", "")
        if rule is not None and not self.is_over:
            self.is_over = True
            self._looks.blocklist.ended(rule, Connection(self.number))
        yield


def of_address(name: str, reason: str = "") -> Rule:
    return Rule(read_key("address", name), reason)


def test_rule_that_comes_during_a_look_has_the_next_one() -> None:
    looks = Looks([])
    with capture_logs():
        first = looks.put(of_address("10.0.0.0").key, Order("a", 1))
        (units, then) = looks.pieces.pop()
        for _ in range(3):
            next(units)
        second = looks.put(of_address("10.0.0.1").key, Order("b", 1))
        assert not looks.pieces
        for _ in units:
            pass
        assert first.over.is_set()
        assert not second.over.is_set()
        then()
        looks.go_on()
    assert [session.is_over for session in looks.sessions] == [True, True, False]
    assert (first.connections, second.connections) == (1, 1)
    assert second.over.is_set()


def test_rule_that_is_taken_away_before_its_look_ends_nothing() -> None:
    looks = Looks([])
    with capture_logs():
        looks.put(of_address("10.0.0.0").key, Order("a", 1))
        ended = looks.put(of_address("10.0.0.1").key, Order("b", 1))
        looks.put(of_address("10.0.0.1").key, None)
        looks.go_on()
    assert [session.is_over for session in looks.sessions] == [True, False, False]
    assert ended.over.is_set()
    assert ended.connections == 0


def test_session_that_fails_spares_no_other_from_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Iterator[None]:
        yield
        raise RuntimeError("broken")

    looks = Looks([])
    monkeypatch.setattr(looks.sessions[0], "rules_added", fails)
    ended = looks.put(of_address("10.0.0.1").key, Order("b", 1))
    units, then = looks.pieces.pop()
    with pytest.raises(RuntimeError, match="broken"), capture_logs() as lines:
        list(units)
    then()
    assert ended.over.is_set()
    assert [session.is_over for session in looks.sessions] == [False, True, False]
    assert [line["connections"] for line in lines if line["event"] == "blocked"] == [1]
    looks.put(of_address("10.0.0.2").key, Order("b", 1))
    assert len(looks.pieces) == 1


def test_wider_block_that_replaces_a_narrow_one_leaves_no_gap() -> None:
    """At no moment is a client let in that both files block."""
    looks = Looks([of_address("10.0.0.0/24")], count=0)
    change = looks.blocklist.compare([of_address("10.0.0.0/16")])
    assert looks.blocklist.rules.of_client("10.0.0.7", "") == looks.blocklist.rules.get(of_address("10.0.0.0/24").key)
    assert looks.blocklist.rules.of_client("10.0.1.7", "") is None
    assert looks.blocklist.lay(change)
    assert looks.blocklist.rules.of_client("10.0.0.7", "") == looks.blocklist.rules.get(of_address("10.0.0.0/16").key)
    assert looks.blocklist.rules.of_client("10.0.1.7", "") is not None


def test_many_rules_have_few_lines_and_all_count() -> None:
    rules = [of_address(f"10.0.{number // 250}.{number % 250}") for number in range(MANY)]
    looks = Looks([], count=30)
    with capture_logs() as lines:
        looks.reload(rules)
    events = [line["event"] for line in lines if line["event"] != "ended by a block"]
    assert events == ["blocked"] * MOST_RULES_LOGGED + ["further blocks are in force"]
    assert sum(line.get("connections", 0) for line in lines) == 30
    assert (lines[-1]["blocks"], lines[-1]["first"][0]) == (MANY - MOST_RULES_LOGGED, "address '10.0.0.20'")
    with capture_logs() as lines:
        looks.reload([])
    events = [line["event"] for line in lines]
    assert events == ["unblocked"] * MOST_RULES_LOGGED + ["further blocks are not in force any more"]
    assert lines[-1]["blocks"] == MANY - MOST_RULES_LOGGED
    assert not looks.blocklist.hits


def test_many_rules_without_room_have_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.block_rules.MOST_RULES", 10)
    looks = Looks([], count=0)
    with capture_logs() as lines:
        looks.reload([of_address(f"10.0.0.{number}") for number in range(100)])
    events = [line["event"] for line in lines]
    assert events == ["blocked"] * 10 + ["not blocked"] * MOST_RULES_LOGGED + ["further blocks could not be set"]
    assert lines[-1]["blocks"] == 90 - MOST_RULES_LOGGED


def test_one_look_ends_what_rules_of_several_kinds_mean(world: World) -> None:
    """A block of a topic and one of a role come while a look is under way: both are in the next one."""
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    client >> [producer(1, TOPIC), producer(2, OTHER_TOPIC), producer(3, f"{OTHER_TOPIC}-partition-2")]
    broker.heard()
    broker >> [producer_success(number, f"p{number}") for number in (1, 2, 3)]
    client.heard()
    other = world.client("192.0.2.9")
    other >> connect()
    other.heard()
    blocklist = world.engine.blocklist

    def come() -> list[Any]:
        keys = read_key("topic", OTHER_TOPIC), read_key("producer", "p1"), read_key("address", "192.0.2.9")
        return [blocklist.put(key, Order("spam", 1)) for key in keys]

    ended = world.loop.run(come)
    assert [(each.connections, each.streams) for each in ended] == [(0, 2), (0, 1), (1, 0)]
    assert other.is_gone
    assert not client.is_gone


def test_block_and_its_removal_in_one_turn_end_no_stream(world: World) -> None:
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    client >> producer(1, TOPIC)
    broker.heard()
    broker >> producer_success(1, "p1")
    client.heard()
    block(world, "producer", "p1")
    unblock(world, "producer", "p1")
    client.heard()
    assert world.counters.blocked == {"producer": 1}


async def test_topic_s_changes_share_looks(make_admin: Any) -> None:
    """What comes by the service, a few in each turn, makes no list of sessions for each rule."""
    admin = await make_admin()
    admin.engine.sessions.update(Session() for _ in range(MANY))
    alive, most = 0, 0
    looking = Blocklist._looking

    def counted(of: Blocklist, look: LookAtSessions, sessions: list[Any]) -> Iterator[None]:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        yield from looking(of, look, sessions)
        alive -= 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blocklist, "_looking", counted)
        wanted: dict[PolicyKey, str | None] = {}
        for number in range(1_000):
            key = Key(Kind.ROLE, f"r{number}")
            wanted[kept_key(key)] = body(key, Order("spam", 1))
        with capture_logs():
            assert await admin.service.take(wanted, Principal("topic", "")) == []
            await _until_done(admin.engine.slices, Work.BLOCKS)
    admin.engine.sessions.clear()
    assert len(admin.engine.blocklist.rules) == 1_000
    assert (alive, most) == (0, 1)
