"""No peer and no policy makes one turn of the loop long: what each turn does is bounded, whatever there is to do."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from accesslog.record import ConnectionLine, IntervalLine
from fleet.messages import INTRODUCTION_BYTES
from limiter.levels import Setting
from limiter.limiter import Limiter, Stream
from limiter.policies import Value, change_of
from limiter.registry import SLICE
from limiter.token_bucket import Limit, rate
from proxy import assembly, bulk, slices
from proxy.assembly import ConfigSource, Proxy
from proxy.block_rules import read_network
from proxy.bulk import PIECE
from proxy.config.model import load_config
from proxy.kicks import Kick, KickEffect, kicking
from proxy.observe import intervals
from proxy.observe.log_lines import Moment
from proxy.observe.steady import CountedSpan
from proxy.policies import service
from proxy.session.data_path import MOST_STREAMS
from proxy.session.leaving import CALM_NS
from proxy.slices import AT_ONCE, Work
from tests.proxy.blocks import block
from tests.proxy.conversation import BROKER, Peer, World, publisher
from tests.proxy.fleet.crowd import MANY as LIMITS
from tests.proxy.fleet.crowd import FleetCrowd
from tests.proxy.identity.keys import token_files
from tests.proxy.longest_turn import LongestTurn
from tests.proxy.wire import (
    as_frame,
    body,
    connect,
    flow,
    name_of,
    producer,
    producer_success,
    send,
    subscribe,
    success,
)

Make = Callable[..., World]
MANY = 500
"""Streams, sessions or limiters: many times what a turn may do."""
MOST = SLICE
"""Streams, sessions, lines or limiters in one turn."""
ONE_A_SECOND = {"namespaces": {"acme/shop": {"publish": {"messages": 1}, "dispatch": {"messages": 1}}}}
PLENTY = {"namespaces": {"acme/shop": {"publish": {"messages": 1_000_000}}}}


def topic(number: int) -> str:
    return f"persistent://acme/shop/{number}"


def with_producers(world: World, count: int = MANY, *, waiting: bool = True) -> tuple[Peer, Peer]:
    """One connection with so many producers, all of which hold an entry."""
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    client >> [producer(number, topic(number % 10)) for number in range(count)]
    broker.heard()
    broker >> [producer_success(number, f"p{number}") for number in range(count)]
    client.heard()
    if waiting:
        client >> [send(0, number) for number in range(count)] + [send(1, number) for number in range(count)]
    return client, broker


def client_resets_its_streams(world: World) -> Callable[[], None]:
    client, _ = with_producers(world)
    return lambda: client.leave(ConnectionResetError("by peer"))


def client_closes_behind_its_streams(world: World) -> Callable[[], None]:
    client, _ = with_producers(world)
    return client.half_close


def broker_goes_with_many_streams(world: World) -> Callable[[], None]:
    _, broker = with_producers(world)
    return broker.leave


def client_leaves_with_many_streams(world: World) -> Callable[[], None]:
    _, broker = with_producers(world)
    world.advance(CALM_NS / 1e9)
    (session,) = world.sessions

    def leave() -> None:
        world.loop.run(lambda: session.leave(is_late=True))
        closes = [frame for frame in broker.heard() if name_of(frame) == "CLOSE_PRODUCER"]
        broker >> [success(body(frame).request_id) for frame in closes]

    return leave


def consumers_reset(world: World) -> Callable[[], None]:
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    client >> [subscribe(number, topic(number % 10)) for number in range(MANY)]
    broker.heard()
    broker >> [success(number) for number in range(MANY)]
    client >> [flow(10, number) for number in range(MANY)]
    return client.leave


def clients_reset_at_once(world: World) -> Callable[[], None]:
    clients = [publisher(world)[0] for _ in range(MANY // 4)]

    def reset() -> None:
        def all_of_them() -> None:
            for client in clients:
                client.transport.break_off(ConnectionResetError("by peer"))

        world.loop.run(all_of_them)

    return reset


def process_ends(world: World) -> Callable[[], None]:
    for _ in range(MANY // 4):
        publisher(world)

    def end() -> None:
        def shut_down() -> None:
            for session in world.sessions:
                session.shut_down()

        world.loop.run(shut_down)

    return end


def change(world: World, setting: Setting, name: str, messages: int | None) -> None:
    """Another value of a publish limit comes into force, as a policy service has it."""

    def come() -> None:
        policies = world.engine.registry.policies
        before = policies.by_name("publish", setting).get(name)
        after = Value(Limit(rate(messages)), "rest") if messages else None
        _, now = world.intervals.change()
        policies.put("publish", setting, name, after)
        changed = change_of(("publish", setting, name), before, after)
        world.engine.policies_changed([changed] if changed is not None else [], now)

    world.loop.run(come)


def limit_of_all_streams_appears(world: World) -> Callable[[], None]:
    with_producers(world)
    return lambda: change(world, Setting.PROXY, "", 10)


def limit_of_a_tenant_goes(world: World) -> Callable[[], None]:
    change(world, Setting.TENANT, "acme", 10)
    with_producers(world)
    return lambda: change(world, Setting.TENANT, "acme", None)


def each_topic_has_another_value(world: World) -> Callable[[], None]:
    client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    client >> [producer(number, topic(number)) for number in range(MANY)]
    broker.heard()
    broker >> [producer_success(number, f"p{number}") for number in range(MANY)]
    client >> [send(number // MANY, number % MANY) for number in range(2 * MANY)]
    return lambda: change(world, Setting.TOPIC_OF_NAMESPACE, "acme/shop", 1000)


def client_opens_many_streams(world: World) -> Callable[[], None]:
    client, _ = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    return lambda: client >> [producer(number, topic(number % 10)) for number in range(MANY)]


def clients_open_streams_at_once(world: World) -> Callable[[], None]:
    """Each client opens a few, from an address that is not crowded."""
    clients = [world.pair(f"{BROKER[0]}:{BROKER[1]}")[0] for _ in range(MANY // 4)]

    def open_some() -> None:
        def all_of_them() -> None:
            for client in clients:
                client.transport.receive(b"".join(producer(number, topic(number)) for number in range(4)))

        world.loop.run(all_of_them)

    return open_some


def clients_greet_at_once(world: World) -> Callable[[], None]:
    """Each from an address of its own, so that none is crowded."""
    clients = [world.client(f"192.0.2.{number % 250}") for number in range(MANY // 2)]

    def greet() -> None:
        def all_of_them() -> None:
            for client in clients:
                client.transport.receive(as_frame(connect()))

        world.loop.run(all_of_them)

    return greet


def _block(world: World, kind: str, name: str) -> None:
    block(world, kind, name)


def rule_blocks_streams(world: World) -> Callable[[], None]:
    with_producers(world)
    return lambda: _block(world, "topic", topic(3))


def rule_blocks_clients(world: World) -> Callable[[], None]:
    for _ in range(MANY // 4):
        publisher(world)
    return lambda: _block(world, "address", "192.0.2.7")


def _kick(world: World, kick: Kick) -> None:
    units = kicking(world.engine.sessions, kick, KickEffect())
    world.loop.run(world.engine.slices.run, Work.ENDINGS, units)


def kick_ends_streams(world: World) -> Callable[[], None]:
    with_producers(world)
    return lambda: _kick(world, Kick(topic=topic(3)))


def kick_ends_clients(world: World) -> Callable[[], None]:
    for _ in range(MANY // 4):
        publisher(world)
    return lambda: _kick(world, Kick(network=read_network("192.0.2.7")))


def clients_say_nothing(world: World) -> Callable[[], None]:
    for _ in range(MANY // 4):
        world.client()
    return lambda: world.advance(world.config.handshake_timeout)


def interval_ends(world: World) -> Callable[[], None]:
    with_producers(world)
    return lambda: world.advance(1)


@pytest.mark.parametrize(
    ("arrange", "does"),
    [
        (client_resets_its_streams, {"streams": MANY, "sessions": 1}),
        (client_closes_behind_its_streams, {"streams": MANY}),
        (broker_goes_with_many_streams, {"streams": MANY, "sessions": 1}),
        (client_leaves_with_many_streams, {"streams": MANY, "sessions": 1}),
        (consumers_reset, {"streams": MANY, "sessions": 1}),
        (clients_reset_at_once, {"streams": MANY // 4, "sessions": MANY // 4}),
        (process_ends, {"streams": MANY // 4, "sessions": MANY // 4}),
        (client_opens_many_streams, {"streams": MANY}),
        (clients_open_streams_at_once, {"streams": MANY}),
        (clients_greet_at_once, {"greetings": MANY // 2}),
        (rule_blocks_streams, {"streams": MANY // 10}),
        (rule_blocks_clients, {"streams": MANY // 4, "sessions": MANY // 4}),
        (kick_ends_streams, {"streams": MANY // 10}),
        (kick_ends_clients, {"streams": MANY // 4, "sessions": MANY // 4}),
        (clients_say_nothing, {"sessions": MANY // 4}),
        (limit_of_all_streams_appears, {"wired": MANY}),
        (limit_of_a_tenant_goes, {"wired": MANY}),
        (each_topic_has_another_value, {"tuned": MANY}),
        (interval_ends, {"lines": MANY + 11}),
    ],
)
def test_no_turn_does_more_than_a_slice(
    make_world: Make,
    arrange: Callable[[World], Callable[[], None]],
    does: dict[str, int],
) -> None:
    world = make_world(limits=ONE_A_SECOND, max_connections=MANY)
    act = arrange(world)
    turn = LongestTurn(world)
    act()
    assert {kind: turn.total[kind] for kind in does} == does, "it is all done"
    assert max(turn.most.values()) <= MOST, turn.most


def fleet_forms(crowd: FleetCrowd) -> None:
    """Members introduce their limits; the coordinator hears of all of them."""
    crowd.run(1)


def members_measure_and_get_shares(crowd: FleetCrowd) -> None:
    crowd.run(6)


def members_are_cut_off_and_return(crowd: FleetCrowd) -> None:
    crowd.run(1)
    crowd.hub.is_cut = True
    crowd.run(3)
    crowd.hub.is_cut = False
    crowd.run(1)


def another_member_coordinates(crowd: FleetCrowd) -> None:
    crowd.run(1)
    crowd.loop.run(crowd.proxies[0].fleet.leadership.lead)
    crowd.run(1)


def member_leaves(crowd: FleetCrowd) -> None:
    crowd.run(6)
    task = crowd.loop.run(lambda: crowd.loop.create_task(crowd.proxies[1].fleet.stop()))
    crowd.run(1)
    assert task.done()


@pytest.mark.parametrize(
    ("happens", "does"),
    [
        (fleet_forms, ["_introduce", "_note", "_demand_of"]),
        (members_measure_and_get_shares, ["_demand_of", "_note", "_divide", "assign"]),
        (members_are_cut_off_and_return, ["assign", "_introduce"]),
        (another_member_coordinates, ["_introduce"]),
        (member_leaves, ["_remove", "_divide"]),
    ],
)
def test_no_turn_does_more_for_a_fleet_than_a_slice(
    happens: Callable[[FleetCrowd], None], does: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds are small beside the limits of the two members, of which one also coordinates."""
    at_once, in_a_call = 40, 20
    monkeypatch.setitem(AT_ONCE, Work.FLEET, at_once)
    for name in ("MOST_MEASURED", "_MOST_OTHERS"):
        monkeypatch.setattr(f"limiter.sharing.{name}", in_a_call)
    monkeypatch.setattr("proxy.fleet.member_limits.MOST_PUT", in_a_call)
    monkeypatch.setattr("limiter.sharing._MOST_FIRST", in_a_call // 2)
    monkeypatch.setattr("fleet.coordinator.MOST_STEPS", 3 * in_a_call)
    monkeypatch.setattr("fleet.member.FULL_REPORT", in_a_call * (INTRODUCTION_BYTES + 50))
    crowd = FleetCrowd(monkeypatch)
    happens(crowd)
    assert crowd.loop.trouble == []
    assert min(crowd.total.get(name, 0) for name in does) >= LIMITS, "it is all done"
    assert max(crowd.most.values()) <= 2 * (at_once + in_a_call) < LIMITS, crowd.most
    crowd.loop.close()


def test_a_change_touches_nothing_that_it_does_not_concern(make_world: Make) -> None:
    """However often a tenant changes its limit, others have no line more, and their streams nothing to follow."""
    world = make_world(limits=ONE_A_SECOND)
    with_producers(world)
    change(world, Setting.TENANT, "other", 5)
    turn = LongestTurn(world)
    for messages in (6, 7, None, 8, None):
        change(world, Setting.TENANT, "other", messages)
    assert set(turn.total.values()) == {0}


def test_a_changed_value_ends_one_line_however_many_streams_wait(
    make_world: Make,
) -> None:
    world = make_world(limits={"tenants": {"acme": {"publish": {"messages": 1}}}})
    with_producers(world)
    world.advance(0.5)
    turn = LongestTurn(world)
    for messages in (2, 1, 2):
        world.advance(0.01)
        change(world, Setting.TENANT, "acme", messages)
    assert turn.total["lines"] == 3


def test_a_client_is_not_read_until_its_greeting_has_its_turn(make_world: Make) -> None:
    world = make_world(client_memory={"total": "1MiB", "connection": "64KiB"})
    clients = [world.client() for _ in range(200)]
    frame, unread, kept = as_frame(connect()), list[int](), list[int]()

    def turned() -> None:
        unread.append(sum(not client.is_read for client in clients))
        kept.append(world.engine.memory.used)

    def all_of_them() -> None:
        for client in clients:
            client.transport.receive(frame + bytes(60_000))

    world.loop.turned = turned
    world.loop.run(all_of_them)
    assert max(unread) > 100
    assert max(kept) > 0
    assert max(kept) <= 1024 * 1024
    assert "over_budget" in {line.end_cause for line in world.lines(ConnectionLine)}


def test_tokens_are_verified_a_few_in_each_turn(make_world: Make, tmp_path: Path) -> None:
    world = make_world(authentication=token_files(tmp_path))
    clients = [world.client() for _ in range(100)]
    answered = [0]
    world.loop.turned = lambda: answered.append(sum(world.counters.authentications.values()))

    def all_of_them() -> None:
        for number, client in enumerate(clients):
            shown = as_frame(connect(auth_method_name="token", auth_data=b"e30.%d.c" % number))
            client.transport.receive(shown)

    world.loop.run(all_of_them)
    assert answered[-1] == 100
    assert max(after - before for before, after in pairwise(answered)) <= AT_ONCE[Work.CREDENTIALS]


class Between:
    """Something that happens in the turn after a client with many streams has left, while these end in slices."""

    def __init__(self, world: World, happens: Callable[[], None]) -> None:
        self.left_then = 0
        self._world, self._happens, self._is_over = world, happens, False
        world.loop.turned = self._turned

    def _turned(self) -> None:
        live = len(self._world.engine.registry.live())
        if not self._is_over and 0 < live < MANY:
            self._is_over, self.left_then = True, live
            self._world.loop.call_soon(self._happens)


def test_ids_and_names_are_used_again_while_their_streams_end(make_world: Make) -> None:
    """What a conversation checks at its end holds: each byte, place and stream is given back once."""
    world = make_world(limits=ONE_A_SECOND)
    client, _ = with_producers(world)
    other, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
    again = b"".join(producer(number, topic(number % 10)) for number in range(20))
    between = Between(world, lambda: other.transport.receive(again))
    client.leave(ConnectionResetError("by peer"))
    assert 0 < between.left_then < MANY
    assert len(world.engine.registry.live()) == 20
    broker.heard()
    broker >> [producer_success(number, f"p{number}") for number in range(20)]
    assert other.heard_names() == ["PRODUCER_SUCCESS"] * 20
    _each_message_is_told_once(world, offered=2 * MANY)


def test_limits_change_while_streams_end(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = with_producers(world)
    policies = world.engine.registry.policies

    def come() -> None:
        _, now = world.intervals.change()
        policies.put("publish", Setting.PROXY, "", Value(Limit(rate(7)), "rest"))
        changed = change_of(("publish", Setting.PROXY, ""), None, Value(Limit(rate(7)), "rest"))
        world.engine.policies_changed([changed] if changed else [], now)

    between = Between(world, come)
    client.leave(ConnectionResetError("by peer"))
    assert 0 < between.left_then < MANY
    assert not world.engine.registry.live()
    assert not any(limiter.streams for limiter in world.engine.registry.limiters.values())
    _each_message_is_told_once(world, offered=2 * MANY)


def test_process_ends_while_streams_end(make_world: Make) -> None:
    world = make_world(limits=ONE_A_SECOND)
    client, _ = with_producers(world)

    def stop() -> None:
        world.engine.slices.finish(Work.ENDINGS)
        world.intervals.stop()

    between = Between(world, stop)
    client.leave(ConnectionResetError("by peer"))
    assert 0 < between.left_then < MANY
    assert not world.engine.registry.live()
    _each_message_is_told_once(world, offered=2 * MANY)


def _each_message_is_told_once(world: World, offered: int) -> None:
    world.advance(2)
    lines = world.lines(IntervalLine)
    assert sum(line.offered_messages for line in lines) == offered
    assert sum(line.passed_messages + line.dropped_messages for line in lines) == offered
    assert len(world.lines(ConnectionLine)) == 1


def test_streams_that_are_over_are_freed_in_slices(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log refers to them last, for as long as it may need their encoded fields again."""
    world = make_world(limits=ONE_A_SECOND)
    client, _ = with_producers(world, 2 * MANY)
    world.advance(2)
    client.leave(ConnectionResetError("by peer"))
    left, turns = list[dict[Any, Any]](), list[int]()

    def letting_go(*forgotten: dict[Any, Any]) -> Iterator[None]:
        left.extend(forgotten)
        return slices.letting_go(*forgotten)

    monkeypatch.setattr(intervals, "letting_go", letting_go)
    world.loop.turned = lambda: turns.append(sum(map(len, left)))
    world.advance(3)
    assert max(turns) >= 2 * MANY - 500
    assert turns[-1] == 0
    assert max(before - after for before, after in pairwise([*turns])) <= 500


def test_streams_with_many_limits_follow_in_smaller_slices(make_world: Make) -> None:
    each = {"publish": {"messages": 1000}}
    limits = {"tenants": {"*": each}, "namespaces": {"*/*": each}, "each_topic": each, "producers": {"*": each}}
    world = make_world(limits={"proxy": each} | limits)
    with_producers(world, waiting=False)
    turn = LongestTurn(world)
    change(world, Setting.PROXY, "", None)
    assert turn.total["wired"] == MANY
    assert turn.most["wired"] <= MOST // 5


def test_lines_that_changes_end_take_time_of_the_changes(make_world: Make) -> None:
    """Each topic has a limit of its own, with a line that ends, and so has each line before it that is not made yet."""
    world = make_world(limits=PLENTY | {"each_topic": {"publish": {"messages": 1000}}})
    crowd = Crowd(world, MANY)
    world.advance(0.5)
    turn = LongestTurn(world)
    change(world, Setting.TOPIC_OF_NAMESPACE, "acme/shop", 2000)
    assert turn.total["lines"] == MANY
    assert turn.most["lines"] <= AT_ONCE[Work.LINES]
    assert crowd.turns == []


class Crowd:
    """A connection with many producers, each with an own topic, which all send again in turns of the loop.

    Attributes:
        turns: What `note` returned after each turn.
    """

    def __init__(self, world: World, count: int) -> None:
        self.turns = list[int]()
        self._world, self._count, self._sent = world, count, 0
        self._client, broker = world.pair(f"{BROKER[0]}:{BROKER[1]}")
        for first in range(0, count, 100):
            numbers = range(first, first + 100)
            self._client >> [producer(number, topic(number)) for number in numbers]
            broker.heard()
            broker >> [producer_success(number, f"p{number}") for number in numbers]
        self._client >> self.chunk()

    def chunk(self) -> bytes:
        self._sent += 1
        return b"".join(send(self._sent, number) for number in range(self._count))

    def send_while_lines_are_made(self, times: int, turn_ns: int, note: Callable[[], int]) -> None:
        """All send in the turn after an interval has ended, and so many times in all, until their lines are made."""

        def turned() -> None:
            self.turns.append(note())
            if self._world.engine.slices.waiting(Work.LINES):
                self._world.clock.now += turn_ns
                if self._sent <= times and self._client.is_read:
                    self._world.loop.call_soon(self._client.transport.receive, self.chunk())

        self._world.loop.turned = turned
        self._world.advance(10)

    def longest(self) -> int:
        return max(after - before for before, after in pairwise(self.turns))


def test_lines_that_take_longer_than_an_interval_stay_in_slices(make_world: Make) -> None:
    world = make_world(limits=PLENTY)
    crowd = Crowd(world, MANY)
    crowd.send_while_lines_are_made(10, turn_ns=100_000_000, note=lambda: world.access.lines)
    assert crowd.turns[-1] >= 3 * MANY
    assert crowd.longest() <= AT_ONCE[Work.LINES] + 1
    lines = world.lines(IntervalLine)
    assert sum(line.passed_messages for line in lines) == 11 * MANY


@pytest.mark.parametrize("limits", [PLENTY, ONE_A_SECOND], ids=["they pass", "they are held"])
def test_counts_are_taken_in_slices_though_all_streams_send(make_world: Make, limits: Any) -> None:
    world = make_world(limits=limits)
    crowd, taken = Crowd(world, 4 * MANY), [0]
    take = world.intervals._taken

    def counted(subject: Stream | Limiter, end: Moment, began: Moment) -> CountedSpan:
        taken[0] += 1
        return take(subject, end, began)

    world.intervals._taken = counted  # type: ignore[method-assign]
    crowd.send_while_lines_are_made(2, turn_ns=0, note=lambda: taken[0])
    assert crowd.turns[-1] >= 8 * MANY
    in_slices = intervals._TAKEN * AT_ONCE[Work.LINES]
    in_reads = AT_ONCE[Work.ENTRIES] // intervals.TAKEN_EARLY + 3 * MOST_STREAMS
    assert crowd.longest() <= in_slices + in_reads


@pytest.mark.parametrize("then", ["", "limits: {}\n"])
async def test_file_that_is_read_again_is_freed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Of an unchanged file all values are garbage, of a changed one those that were."""
    file = tmp_path / "sluice.yaml"
    text = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlimits:\n  tenants:\n"
    text += "".join(f"    t{number}: {{publish: {{messages: {number + 1}}}}}\n" for number in range(4 * PIECE))
    file.write_text(text)
    proxy = Proxy(ConfigSource(file, lambda: load_config(file, {})))
    file.write_text(then or text)
    left, begun, by_threads, turns = list[dict[Any, Any]](), list[int](), list[int](), list[int]()

    def letting_go(*forgotten: dict[Any, Any]) -> Iterator[None]:
        left.extend(forgotten)
        begun.extend(map(len, forgotten))
        return slices.letting_go(*forgotten)

    def let_go(tree: Any) -> None:
        by_threads.append(sum(map(len, tree)))
        assert threading.current_thread() is not threading.main_thread()
        bulk.let_go(tree)

    monkeypatch.setattr(assembly, "letting_go", letting_go)
    monkeypatch.setattr(service, "let_go", let_go)
    await proxy.reloader.reload("SIGHUP")
    while left and any(left):
        turns.append(sum(map(len, left)))
        await asyncio.sleep(0)
    await proxy.stop()
    assert (len(left), by_threads) == (1, [4 * PIECE] if then else [])
    assert then or begun == [4 * PIECE]
    assert max((before - after for before, after in pairwise([*turns, 0])), default=0) <= 500
