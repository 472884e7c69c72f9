"""Members whose policies change by a topic, with a broker that misbehaves on demand."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from limiter.levels import Setting
from limiter.policies import Policies
from protocol.endpoint import Endpoint
from protocol.pulsar_pb2 import CommandSubscribe, MessageMetadata
from proxy.admin import metrics
from proxy.admin.routes import sharing
from proxy.block_rules import read_key
from proxy.blocking.blocklist import Blocklist
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.targets import Targets
from proxy.cli import top_view
from proxy.cli.top_view import PoliciesAnswer
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.fleet import policy_topic
from proxy.fleet.policy_topic import KEEPER, PolicyTopic
from proxy.policies import room, topic_log
from proxy.policies.bodies import BodyError, PublishRate, kept_as_pulsar_s
from proxy.policies.kept_blocks import BlockDesk, KeptBlocks
from proxy.policies.keys import PolicyKey, PolicyKind, Principal, rate_key
from proxy.policies.layers import FilePolicies
from proxy.policies.service import Around, Expected, NotAsExpectedError, NotCarriedError, PolicyService, tag_of
from proxy.policies.store import Store, StoredChange, StoreError
from proxy.policies.topic_log import FOUNDED, MOST_CHANGE, founding, slot_of
from proxy.slices import Slices
from proxy.tls.certificates import Certificates
from tests.proxy.fleet.defect import Defect, errors_told
from tests.proxy.fleet.scripted_broker import ScriptedBroker
from tests.proxy.policies.test_topic_log import SLOT, message
from tests.waiting import until

TOPIC = "persistent://public/sluice/front-policies"
ANN = Principal("ann", "10.0.0.1")
KEY, OTHER = (rate_key("publish", Setting.TENANT, name) for name in ("acme", "other"))


def rate(messages: int) -> str:
    return kept_as_pulsar_s(PublishRate(messages, -1))


class Member:
    """Policies with a store, and the topic."""

    def __init__(
        self, broker: "Broker", name: str, *, ahead_ns: int | None = None, is_of_one_proxy: bool = True, **stored: str
    ) -> None:
        self.store = Store(None, is_alone=ahead_ns is not None)
        changes = [StoredChange(rate_key("publish", Setting.TENANT, name), None, body) for name, body in stored.items()]
        self.store.write(changes, ahead_ns or 1, "ann", "")
        self.store._is_alone = False
        self.blocks = KeptBlocks(Blocklist((), Counters(), []))
        around = Around(lambda: (1, 2), lambda _changes, _now: None, handlers={PolicyKind.BLOCK: self.blocks})
        self.policies = Policies()
        self.service = PolicyService(self.policies, FilePolicies({}, {}, {}), self.store, around)
        self.desk = BlockDesk(self.service, self.blocks)
        at = broker.at
        certificates = Certificates(Config(broker=str(at)))
        dialer = BrokerDialer(Targets((at,)), certificates, Counters(), sends_proxy_header=False)
        self.slices = Slices(Counters())
        self.topic = PolicyTopic(TOPIC, dialer, None, name, self.service, self.slices, is_of_one_proxy=is_of_one_proxy)

    @property
    def kept(self) -> dict[str, str]:
        return {key.name: body for key, body in self.store.policies()}

    async def set(self, key: PolicyKey, kept: str | None, expected: str = "") -> int:
        condition = Expected(key, frozenset({expected})) if expected else None
        return await self.service.change({key: kept}, ANN, condition)


class Broker(ScriptedBroker):
    """One that is started, and whose topic is written to by strangers."""

    at: Endpoint

    def forge(self, slot: str, sent: bytes, **more: Any) -> None:
        metadata = MessageMetadata(producer_name="x", sequence_id=1, publish_time=1, partition_key=slot, **more)
        metadata.uncompressed_size = len(sent)
        encoded = metadata.SerializeToString()
        self.publish(TOPIC, len(encoded).to_bytes(4) + encoded + sent)


class World:
    """A broker and its members."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.members: list[Member] = []

    async def join(self, name: str, **stored: Any) -> Member:
        self.members.append(Member(self.broker, name, **stored))
        await self.members[-1].topic.start()
        return self.members[-1]

    async def two(self) -> tuple[Member, Member]:
        first, second = await self.join("a"), await self.join("b")
        await self.in_step()
        return first, second

    async def in_step(self) -> None:
        await until(lambda: all(each.topic.state == "in_step" for each in self.members))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    broker = Broker()
    broker.at = await broker.start()
    world = World(broker)
    yield world
    for member in world.members:
        await member.topic.stop()
        await member.service.close()
    broker.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_answered_change_is_in_force_here_and_soon_everywhere(
    world: World,
) -> None:
    first, second = await world.two()
    assert await first.set(KEY, rate(5)) == 1
    assert first.kept == {"acme": rate(5)}
    assert first.policies.get("publish", Setting.TENANT, "acme") is not None
    await until(lambda: second.kept == first.kept and second.store.audited(5))
    assert [(each.who, each.address) for each in second.store.audited(5)] == [("ann", "10.0.0.1 by a")]
    assert await second.set(KEY, None) == 1
    await until(lambda: first.kept == {})
    assert await first.set(KEY, None) == 0
    assert second.topic.last is not None
    assert (second.topic.last.change.version, second.topic.last.change.member) == (2, "b")
    keepers = [each for each in world.broker.seen_of(CommandSubscribe) if each.durable]
    assert {each.subscription for each in keepers} == {KEEPER}
    await until(lambda: len(world.broker.topic(TOPIC).compacted()) == 2)  # the founding, and that it is taken back


async def test_first_member_takes_changes_when_its_policies_are_back(world: World, monkeypatch: Any) -> None:
    """The topic has no history and gets its policies, which come back later: until then it is not in step."""
    loop, publish = asyncio.get_running_loop(), world.broker.publish
    monkeypatch.setattr(world.broker, "publish", lambda *sent: loop.call_later(0.05, publish, *sent))
    member = await world.join("a", acme=rate(5))
    await member.topic._in_step.wait()
    assert await member.set(KEY, rate(6)) == 1


def in_force(member: Member) -> tuple[object, ...]:
    policies = member.policies
    group = policies.get("publish", Setting.RESOURCE_GROUP, "gold")
    return group, dict(policies.groups_of_tenants), dict(policies.groups_of_namespaces)


async def test_groups_and_who_is_attached_to_them_are_those_of_all_members(world: World) -> None:
    first, second = await world.two()
    group = PolicyKey(PolicyKind.GROUP, "", "gold")
    of_tenant, of_namespace = (
        PolicyKey(PolicyKind.ATTACHMENT, setting, name)
        for setting, name in (("tenant", "acme"), ("namespace", "other/shop"))
    )
    for member, key, kept in (
        (first, group, '{"publishRateInMsgs": 10}'),
        (second, of_tenant, "gold"),
        (first, of_namespace, "gold"),
    ):
        assert await member.set(key, kept) == 1
        await until(lambda: in_force(first) == in_force(second))  # a store has it before that
    assert dict(first.store.policies()) == dict(second.store.policies())
    for member in (first, second):
        assert member.policies.get("publish", Setting.RESOURCE_GROUP, "gold") is not None
        assert (member.policies.groups_of_tenants, member.policies.groups_of_namespaces) == (
            {"acme": "gold"},
            {"other/shop": "gold"},
        )
    late = await world.join("c")
    await late.topic.catch_up()
    assert late.policies.groups_of_tenants == {"acme": "gold"}
    assert await second.set(of_namespace, None) == 1
    assert await second.set(of_tenant, None) == 1
    await until(lambda: not first.policies.groups_of_tenants and not late.policies.groups_of_tenants)
    assert first.policies.groups_of_namespaces == {}


async def test_of_two_at_once_both_are_done_and_the_later_one_holds(world: World) -> None:
    first, second = await world.two()
    assert sum(await asyncio.gather(first.set(KEY, rate(5)), second.set(KEY, rate(6)))) == 2
    await until(lambda: first.kept == second.kept)
    assert first.topic.conflicts + second.topic.conflicts == 1


async def test_of_those_who_replace_the_same_one_wins(world: World) -> None:
    first, second = await world.two()
    for number in range(5):
        tag = tag_of(first.store.read(KEY))
        sent = [each.set(KEY, rate(10 * number + place), tag) for place, each in enumerate((first, second) * 3)]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert sorted(str(type(each).__name__) for each in outcomes) == ["NotAsExpectedError"] * 5 + ["int"]
        await until(lambda: first.kept == second.kept)


async def test_who_asks_a_member_that_is_behind_is_not_told_what_was(world: World) -> None:
    first, second = await world.two()
    await first.set(KEY, rate(5))
    await first.set(OTHER, rate(5))
    assert await second.set(KEY, rate(5)) == 0
    assert second.kept == {"acme": rate(5), "other": rate(5)}
    with pytest.raises(NotAsExpectedError, match="acme"):
        await second.set(KEY, rate(7), tag_of(None))


async def test_connections_that_are_lost_are_made_again_and_what_was_missed_is_read(world: World) -> None:
    first, second = await world.two()
    for number in range(3):
        world.broker.drop()
        assert await first.set(KEY, rate(number)) == 1
        await until(lambda: second.kept == first.kept)
    assert first.topic.counts.reconnects >= 3


async def test_the_first_member_gives_the_topic_its_policies_and_the_others_take_them(world: World) -> None:
    empty = await world.join("e")
    await world.in_step()
    first = await world.join("a", acme=rate(5), shop=rate(1))
    await world.in_step()
    await until(lambda: empty.kept == first.kept)
    second = await world.join("b", acme=rate(6), till=rate(2))
    await world.in_step()
    await until(lambda: second.kept == {"acme": rate(5), "shop": rate(1)})
    assert first.kept == second.kept
    world.broker.topic(TOPIC).kept.clear()  # somebody has deleted the topic
    world.broker.drop()
    await world.in_step()
    third = await world.join("c")
    await until(lambda: third.kept == first.kept)


LATER_NS = 2**62


@pytest.mark.parametrize(("ahead_ns", "is_of_one_proxy"), [(None, True), (1, True), (LATER_NS, False)])
async def test_store_follows_a_topic_that_is_newer_or_of_others(
    world: World, *, ahead_ns: int | None, is_of_one_proxy: bool
) -> None:
    first = await world.join("a")
    await world.in_step()
    await first.set(KEY, rate(5))
    other = await world.join("b", ahead_ns=ahead_ns, is_of_one_proxy=is_of_one_proxy, acme=rate(6), other=rate(2))
    await world.in_step()
    expected = {"acme": rate(5)} | ({"other": rate(2)} if ahead_ns == 1 else {})
    await until(lambda: other.kept == first.kept == expected)
    assert other.store.ahead_ns is None


async def test_store_changed_by_one_process_is_given_to_the_topic(world: World) -> None:
    first = await world.join("a")
    await world.in_step()
    for key in (KEY, OTHER):
        await first.set(key, rate(5))
    alone = await world.join("b", ahead_ns=LATER_NS, acme=rate(6), shop=rate(2))
    await world.in_step()
    await until(lambda: first.kept == {"acme": rate(6), "shop": rate(2)})
    assert alone.kept == first.kept
    assert alone.store.ahead_ns is None
    await first.set(KEY, rate(7))
    await until(lambda: alone.kept == first.kept == {"acme": rate(7), "shop": rate(2)})


async def test_store_is_given_to_the_topic_again_where_that_broke_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await world.join("a")
    await world.in_step()
    await first.set(KEY, rate(5))
    alone = Member(world.broker, "b", ahead_ns=LATER_NS, acme=rate(6))
    give, world.members = alone.topic._give, [*world.members, alone]

    async def drop(*given: Any) -> bool:
        monkeypatch.setattr(alone.topic, "_give", give)
        world.broker.drop()
        return await give(*given)

    monkeypatch.setattr(alone.topic, "_give", drop)
    await alone.topic.start()
    await until(lambda: first.kept == alone.kept == {"acme": rate(6)})
    await world.in_step()
    assert alone.store.ahead_ns is None


async def test_what_is_no_change_is_dropped_and_counted_and_others_go_on(world: World) -> None:
    first, second = await world.two()
    await first.set(KEY, rate(5))
    world.broker.forge(SLOT, message(v=2))
    world.broker.forge(SLOT, b"{")
    world.broker.forge("nothing", message())
    world.broker.forge(SLOT, b"x" * (MOST_CHANGE + 1))
    world.broker.forge(SLOT, message(), num_messages_in_batch=1)
    world.broker.forge(slot_of(OTHER, "0" * 16), message(body='{"limit":1}'))
    world.broker.forge(slot_of(PolicyKey(PolicyKind.GROUP, "", "g"), "0" * 16), message(body="{"))
    world.broker.forge(slot_of(PolicyKey(PolicyKind.BLOCK, "", "role x"), "0" * 16), message(body="{}"))
    world.broker.forge(slot_of(PolicyKey(PolicyKind.DYNAMIC, "", "x"), "0" * 16), message(body="{}"))
    world.broker.forge(slot_of(PolicyKey(PolicyKind.GROUP, "", "deep"), "0" * 16), message(body="[" * 20_000))
    await first.set(KEY, rate(6))
    await until(lambda: second.kept == {"acme": rate(6)})
    causes = {"version": 1, "malformed": 1, "key": 1, "oversized": 1, "foreign": 1, "body": 5}
    assert second.topic.dropped_messages() == causes
    assert await first.set(OTHER, rate(1)) == 1  # what could not be read is replaced
    await until(lambda: second.kept == {"acme": rate(6), "other": rate(1)})


async def test_missing_policy_topic_refuses_changes_and_names_a_remedy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_topic, "PATIENCE_S", 0.2)
    world.broker.refuses_producers = "not authorized"
    member = await world.join("a", acme=rate(5))
    await until(lambda: "grant-permission public/sluice" in member.topic.problem)
    with pytest.raises(NotCarriedError, match=r"nothing has changed: .*not authorized") as refusal:
        await member.set(KEY, rate(6))
    assert not refusal.value.was_sent
    await until(lambda: list(member.topic.degraded()) != [])  # a timer of the loop may fire a moment early
    [state] = member.topic.degraded()
    assert state.cause == "policies_cut_off"
    assert f"do not follow {TOPIC}: the broker refuses: not authorized; the store's policies hold" in state.reason
    assert state.remedy.endswith("namespaces grant-permission public/sluice --role ROLE --actions produce,consume")
    monkeypatch.setattr(policy_topic, "PATIENCE_S", 100)
    assert list(member.topic.degraded()) == []  # it may have just begun to connect
    member.topic._lost_at -= 100
    with pytest.raises(NotCarriedError):  # at once
        await member.set(KEY, rate(6))
    assert (member.topic.state, member.kept) == ("away", {"acme": rate(5)})
    world.broker.refuses_producers = ""
    await world.in_step()
    assert list(member.topic.degraded()) == []


async def test_what_was_sent_and_does_not_come_back_may_hold_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_topic, "PATIENCE_S", 0.2)
    first, second = await world.two()
    world.broker.swallows = True
    with pytest.raises(NotCarriedError, match="may hold now, or later") as refusal:
        await first.set(KEY, rate(6))
    assert refusal.value.was_sent
    with pytest.raises(NotCarriedError, match="nothing has changed"):
        await first.set(KEY, None)  # nobody can tell whether it is so already
    world.broker.swallows = False
    monkeypatch.setattr(policy_topic, "PATIENCE_S", 100)
    await second.set(KEY, rate(7))
    await until(lambda: first.kept == {"acme": rate(7)})


async def test_what_a_store_cannot_take_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_topic, "AGAIN_S", 0.01)
    first, second = await world.two()
    write, failures = second.store.write, [StoreError("full"), StoreError("full")]

    def fail(*args: Any) -> None:
        if failures:
            raise failures.pop()
        write(*args)

    monkeypatch.setattr(second.store, "write", fail)
    await first.set(KEY, rate(6))
    await until(lambda: second.kept == first.kept)
    assert not failures


@pytest.mark.parametrize("owner", [PolicyService, PolicyTopic])
async def test_a_defect_is_told_and_what_it_kept_from_coming_into_force_does_so_later(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: Any
) -> None:
    name = "take" if owner is PolicyService else "_mark"
    defect = Defect(owner, name)
    with capture_logs() as lines:
        if owner is PolicyTopic:
            defect.plant(monkeypatch)
        first, second = await world.two()
        defect.plant(monkeypatch)
        await first.set(KEY, rate(6))
        await until(lambda: second.kept == first.kept == {"acme": rate(6)})
    assert defect.is_over
    assert len(errors_told(lines)) == 1
    assert first.topic.counts.defects + second.topic.counts.defects == 1


async def test_what_others_have_left_is_cleared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_topic, "CLEAR_S", 0.01)
    monkeypatch.setattr(policy_topic, "DELETED_STAY_S", 0)
    first, _ = await world.two()
    await first.set(OTHER, rate(5))
    for number in range(3):
        world.broker.forge(slot_of(KEY, f"{number:016x}"), message(version=number + 1, body=None))
    await until(lambda: len(world.broker.topic(TOPIC).compacted()) == 2)  # the founding, and what holds
    await until(lambda: first.topic.log.changes == 1)
    assert first.kept == {"other": rate(5)}


async def test_who_waits_when_it_ends_is_told(world: World) -> None:
    first, _ = await world.two()
    world.broker.swallows = True
    sent = [asyncio.ensure_future(first.set(key, rate(6))) for key in (KEY, OTHER)]
    await until(lambda: first.topic._pending)
    await first.topic.stop()
    outcomes = await asyncio.gather(*sent, return_exceptions=True)
    assert [each.was_sent for each in outcomes if isinstance(each, NotCarriedError)] == [True, False]


async def test_many_go_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_topic, "MOST_IN_PART", 7)
    first, second = await world.two()
    wanted = {rate_key("publish", Setting.TENANT, f"t{number}"): rate(number) for number in range(30)}
    assert await first.service.change(wanted, ANN) == 30
    await until(lambda: second.kept == first.kept)
    assert len(first.kept) == 30


async def test_many_are_proposed_a_few_in_a_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_topic, "_AT_ONCE", 5)
    first, _ = await world.two()
    in_turn, most, propose = [0], [0], topic_log.PolicyLog.propose

    def counted(*args: Any) -> Any:
        in_turn[0] += 1
        return propose(*args)

    def turn() -> None:
        most[0], in_turn[0] = max(*most, *in_turn), 0
        if len(first.kept) < 100:
            loop.call_soon(turn)

    monkeypatch.setattr(topic_log.PolicyLog, "propose", counted)
    loop = asyncio.get_running_loop()
    loop.call_soon(turn)
    wanted = {rate_key("publish", Setting.TENANT, f"t{number}"): rate(number) for number in range(100)}
    assert await first.service.change(wanted, ANN) == 100
    assert 0 < most[0] <= 5


async def test_what_is_shown(world: World) -> None:
    first, second = await world.two()
    await first.set(KEY, rate(5))
    await until(lambda: second.kept == first.kept)
    shown = sharing._policies(second.topic)
    assert shown["last"] is not None
    assert (shown["topic"], shown["state"], shown["policies"], shown["problem"]) == (TOPIC, "in_step", 1, "")
    assert (shown["last"]["policy"], shown["last"]["who"], shown["last"]["member"]) == (str(KEY), "ann", "a")
    world.broker.forge("nothing", b"x")
    await until(lambda: second.topic.dropped["key"])
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics._policy_topic(second.topic)
        for sample in family.samples
    }
    assert samples["sluice_policy_topic_state", "in_step"] == 1
    assert samples["sluice_policy_topic_state", "away"] == 0
    assert samples["sluice_policy_topic_changes",] == 1
    assert samples["sluice_policy_topic_changes_bytes",] == second.topic.log.size > 300
    assert samples["sluice_policy_topic_messages_refused_total", "key"] == 1
    assert samples["sluice_policy_topic_messages_received_total",] == second.topic.counts.messages_in
    answer = msgspec.json.decode(msgspec.json.encode(shown), type=PoliciesAnswer)
    head = top_view._policies_head(answer)
    assert head[0].startswith(f"policies: in step; 1 changes on {TOPIC}, at 0:")
    assert head[1].startswith("last change: publish tenant acme by ann, at a, ")


# ---- Whoever may write there


@pytest.mark.parametrize("versions", [(2**53,), (2**53 - 1, 2**53), (2**53, 2**53, 2**53)])
async def test_a_version_above_which_there_is_none_keeps_nobody_from_changing_the_policy(
    world: World, versions: tuple[int, ...]
) -> None:
    first, second = await world.two()
    await first.set(KEY, rate(5))
    for number, version in enumerate(versions):
        world.broker.forge(slot_of(KEY, f"{number:016x}"), message(version=version, body=rate(1)))
    await until(lambda: first.kept == second.kept == {"acme": rate(1)})
    assert await first.set(KEY, rate(6), tag_of(rate(1))) == 1
    assert await second.set(KEY, rate(7), tag_of(rate(6))) == 1
    assert await second.set(KEY, None) == 1
    await until(lambda: first.kept == second.kept == {})
    late = await world.join("c")
    await world.in_step()
    assert late.kept == {}


async def test_where_there_is_no_room_policies_are_taken_back_and_then_there_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_CHANGES", 3)
    first, second = await world.two()
    junk = [rate_key("publish", Setting.TENANT, f"junk-{number}") for number in range(4)]
    with capture_logs() as lines:
        for number, key in enumerate(junk):
            world.broker.forge(slot_of(key, f"{number:016x}"), message(body=rate(1)))
        await until(lambda: first.topic.dropped["full"] and len(second.kept) == 3)
    assert len([each for each in lines if "see which roles may write there" in each["event"]]) == len(world.members)
    assert [state.cause for state in first.topic.degraded()] == ["policies_full"]
    with pytest.raises(BodyError, match="take policies back"):
        await first.set(KEY, rate(5))
    assert await first.set(junk[0], None) == 1
    assert await first.set(KEY, rate(5)) == 1
    await until(lambda: second.kept == first.kept == {"junk-1": rate(1), "junk-2": rate(1), "acme": rate(5)})
    assert await second.set(junk[1], None, tag_of(rate(1))) == 1
    assert await second.set(junk[2], None) == 1
    monkeypatch.setattr(room, "MOST_CHANGES", 2)  # of one it is said for an hour that it was taken back
    monkeypatch.setattr(policy_topic, "MOST_IN_PART", 1)
    with pytest.raises(NotCarriedError, match="a part was sent, and holds; of the rest: full"):
        await first.service.change({OTHER: rate(1), KEY: None, junk[3]: rate(1), junk[0]: rate(1)}, ANN)
    assert first.kept == {"other": rate(1)}
    monkeypatch.setattr(room, "MOST_CHANGES", 3)
    assert await first.service.change({KEY: rate(5), OTHER: None}, ANN) == 2
    monkeypatch.setattr(policy_topic, "CLEAR_S", 0.01)
    for each in first, second:  # it looks each ten minutes
        each.topic._client.tasks.start(each.topic._clear)
    await until(lambda: second.kept == first.kept == {"junk-3": rate(1), "acme": rate(5)})  # what had no room


async def test_many_changes_of_one_policy_cost_little_and_the_next_one_holds(world: World) -> None:
    first, second = await world.two()
    for number in range(300):
        world.broker.forge(slot_of(KEY, f"{number:016x}"), message(version=number + 1, body=rate(number)))
    await until(lambda: first.kept == second.kept == {"acme": rate(299)})
    assert first.topic.log.changes == topic_log.MOST_OF_ONE
    assert await first.set(KEY, rate(5)) == 1
    await until(lambda: second.kept == first.kept == {"acme": rate(5)})
    await until(lambda: second.topic.log.changes == 1)


async def test_what_cannot_be_read_here_is_told_and_does_not_fill_the_log(world: World) -> None:
    (first, _), slots = await world.two(), list[str]()
    with capture_logs() as lines:
        for number in range(50):
            slots.append(slot_of(KEY, f"{number:016x}"))
            world.broker.forge(slots[-1], message(version=number + 1, body=f"{number}"))
            await until(lambda: first.topic.dropped["body"] == len(slots))
    events = [each for each in lines if "cannot be read here" in each["event"]]
    assert [each["first"] for each in events] == [[str(KEY)]] * len(world.members)
    [state] = first.topic.degraded()
    assert (state.cause, state.reason[:2]) == ("policies_not_in_force", "1 ")


async def test_authors_who_alternate_cost_as_many_writes_as_there_are_authors(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        key = rate_key("publish", Setting.TENANT, f"t{number}")
        world.broker.forge(slot_of(key, f"{number:016x}"), message(body=rate(1), who=f"w{number % 2}"))
    world.broker.forge(FOUNDED, founding(1, "x"))
    member = Member(world.broker, "a")
    world.members.append(member)
    write, written = member.store.write, list[int]()

    def count(changes: Sequence[StoredChange], *rest: Any) -> None:
        written.append(len(changes))
        write(changes, *rest)

    monkeypatch.setattr(member.store, "write", count)
    await member.topic.start()
    await until(lambda: len(member.kept) == 60)
    assert written == [30, 30]


async def test_marks_that_do_not_come_back_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_topic, "MARK_S", 0.001)
    world.broker.swallows = True
    member = await world.join("a")
    await until(lambda: member.topic.counts.messages_out > 5 * policy_topic.MOST_MARKS)
    assert len(member.topic._marks) <= policy_topic.MOST_MARKS
    world.broker.swallows = False
    await world.in_step()


@pytest.mark.parametrize("lost", ["readers", "writers"])
async def test_a_reader_or_writer_that_a_broker_has_lost_is_made_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr(policy_topic, "PATIENCE_S", 0.2)
    first, second = await world.two()
    if lost == "readers":  # and nobody is told
        world.broker.topic(TOPIC).consumers.clear()
    else:
        for peer in world.broker.peers:
            peer.topics = dict.fromkeys(peer.topics, "elsewhere")
    for member, messages in ((first, 6), (second, 7)):
        with pytest.raises(NotCarriedError):
            await member.set(KEY, rate(messages))
    monkeypatch.setattr(policy_topic, "PATIENCE_S", 100)
    await world.in_step()
    assert await first.set(KEY, rate(8)) == 1
    await until(lambda: first.kept == second.kept == {"acme": rate(8)})


async def test_a_store_that_stays_full_is_named_and_neither_log_nor_memory_grows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_topic, "AGAIN_S", 0.001)
    monkeypatch.setattr(policy_topic, "PATIENCE_S", 0.05)
    first, second = await world.two()
    tries: list[int] = []

    def fail(*_args: Any) -> None:
        tries.append(1)
        raise StoreError("policies.store: /x: database or disk is full")

    write = first.store.write
    monkeypatch.setattr(first.store, "write", fail)
    with capture_logs() as lines:
        for number in range(5):
            with pytest.raises(NotCarriedError):
                await first.set(KEY, rate(number))
        await until(lambda: len(tries) > 20)
        with pytest.raises(NotCarriedError, match="disk is full"):
            await first.set(KEY, rate(9))
    assert len([each for each in lines if "not in force here" in each["event"]]) == 1
    assert len(first.topic._waiting) <= 2
    monkeypatch.setattr(first.store, "write", write)
    await until(lambda: first.kept == second.kept)
    assert await first.set(KEY, rate(10)) == 1


async def test_the_last_moment_of_time_is_shown(world: World) -> None:
    first, _ = await world.two()
    world.broker.forge(SLOT, message(at_ns=topic_log._LATEST_NS - 1, version=2**53, body=rate(1)))
    await until(lambda: first.topic.last)
    shown = sharing._policies(first.topic)["last"]
    assert shown is not None
    assert shown["at"] == "9999-12-31T23:59:59.999+00:00"


async def test_blocks_hold_everywhere(world: World) -> None:
    first, second = await world.two()
    key = read_key("role", "noisy")
    outcome = await first.desk.block(key, "floods", ANN)
    assert outcome.rule is not None
    await until(lambda: second.blocks.blocklist.rules.get(key) is not None)
    assert (await second.desk.unblock(key, ANN)).rule is not None
    await until(lambda: first.blocks.blocklist.rules.get(key) is None)
    await first.desk.forget_needless()


class LooksInTurns:
    """Counts the look-ups in logs of the topic in each turn of the loop; `most` is the most of one turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self.total = self._in_turn = 0
        holds, self._loop, self._is_over = topic_log.PolicyLog.holds, asyncio.get_running_loop(), False

        def counted(log: topic_log.PolicyLog, key: PolicyKey) -> topic_log.TopicChange | None:
            self._in_turn += 1
            return holds(log, key)

        monkeypatch.setattr(topic_log.PolicyLog, "holds", counted)
        self._turn()

    def stop(self) -> None:
        self._is_over = True

    def _turn(self) -> None:
        self.most, self.total, self._in_turn = max(self.most, self._in_turn), self.total + self._in_turn, 0
        if not self._is_over:
            self._loop.call_soon(self._turn)


MANY = 3_000
"""Policies."""
MOST_LOOKED_AT = 1_000
"""Look-ups in one turn, with those for messages that were read in it."""


def many(count: int = MANY) -> dict[str, str]:
    return {f"t{number}": rate(number + 1) for number in range(count)}


async def test_member_that_reads_again_looks_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await world.join("a", **many())
    await world.in_step()
    await until(lambda: first.topic.log.changes == MANY)
    looks = LooksInTurns(monkeypatch)
    before = first.topic.log
    first.topic._reread()
    await until(lambda: first.topic.log is not before)
    await world.in_step()
    looks.stop()
    assert first.kept == many()
    assert looks.total >= 2 * MANY
    assert looks.most <= MOST_LOOKED_AT
    await until(lambda: before.changes > 0 and not before.policies())


async def test_new_member_takes_the_topic_s_policies_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await world.join("a", **many())
    await world.in_step()
    looks = LooksInTurns(monkeypatch)
    second = await world.join("b", gone=rate(1))
    await world.in_step()
    await until(lambda: second.kept == first.kept)
    looks.stop()
    assert looks.total >= 2 * MANY
    assert looks.most <= MOST_LOOKED_AT


async def test_policies_that_the_topic_lacks_are_found_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await world.join("a", acme=rate(5))
    await world.in_step()
    looks = LooksInTurns(monkeypatch)
    alone = await world.join("b", ahead_ns=LATER_NS, **many())
    await world.in_step()
    await until(lambda: first.kept == alone.kept == many())
    looks.stop()
    assert looks.total >= 2 * MANY
    assert looks.most <= MOST_LOOKED_AT


@pytest.mark.parametrize("at", ["compare", "take"])
async def test_topic_read_again_meanwhile_takes_nothing_back(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The log that is compared, or whose changes are to come into force, is emptied while that goes on."""
    first = await world.join("a", **many(500))
    await world.in_step()
    stored: dict[str, Any] = dict.fromkeys(many(400), rate(7))
    second = Member(world.broker, "b", **stored)
    world.members.append(second)
    topic, interrupted, with_each = second.topic, 0, second.topic._with_each

    async def interrupting(keys: Any, do: Any) -> None:
        nonlocal interrupted
        name = do.__qualname__
        if interrupted < 2 and len(keys) >= 100 and ("put" if at == "take" else "choose") in name:
            interrupted, log = interrupted + 1, topic.log
            topic._begins()
            while log.policies():  # noqa: ASYNC110 - until it is emptied
                await asyncio.sleep(0)
            topic._reader.closed()
        await with_each(keys, do)

    monkeypatch.setattr(topic, "_with_each", interrupting)
    written = list[Any]()
    write = second.store.write

    def noted(changes: Any, *rest: Any) -> None:
        written.extend(changes)
        write(changes, *rest)

    monkeypatch.setattr(second.store, "write", noted)
    await topic.start()
    await until(lambda: second.kept == many(500))
    assert interrupted
    assert [change for change in written if change.after is None] == []
    assert first.kept == many(500)


async def test_change_is_answered_when_in_force_though_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is read twice, and the second time begins when the first one has found the change."""
    first, second = await world.two()
    topic, with_each, is_interrupted = first.topic, first.topic._with_each, False
    topic._reader.closed()
    await until(lambda: topic.state == "away")
    await second.set(KEY, rate(7))
    change = second.topic.log.holds(KEY)
    assert change is not None
    answered = topic._pending[slot_of(KEY, change.id)] = asyncio.get_running_loop().create_future()

    async def interrupting(keys: Any, do: Any) -> None:
        nonlocal is_interrupted
        await with_each(keys, do)
        if do == topic._settle and not is_interrupted:
            is_interrupted = True
            topic._begins()
            topic._reader.closed()

    monkeypatch.setattr(topic, "_with_each", interrupting)
    assert await answered
    assert is_interrupted
    assert first.kept == {"acme": rate(7)}
