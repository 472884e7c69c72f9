"""The link by topics, with a broker that misbehaves on demand."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from itertools import product
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from fleet.messages import MOST_MESSAGE
from protocol.commands import encode
from protocol.endpoint import Endpoint
from protocol.pulsar_pb2 import (
    CommandAuthResponse,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnect,
    CommandError,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPing,
    CommandProducer,
    CommandProducerSuccess,
    CommandSendReceipt,
    CommandSubscribe,
    CommandSuccess,
    CommandTopicMigrated,
    MessageMetadata,
    ProducerAccessMode,
    ServerError,
)
from proxy.brokers.dialing import BrokerDialer
from proxy.brokers.targets import Targets
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.fleet import pulsar_connection, topic_link
from proxy.fleet.link import backoff
from proxy.fleet.topic_link import Membership, TopicLink, topics
from proxy.tls.certificates import Certificates
from tests.proxy.fleet.defect import Defect, errors_told
from tests.proxy.fleet.heard import Heard
from tests.proxy.fleet.scripted_broker import Peer, ScriptedBroker
from tests.waiting import PATIENCE_S, until

LEASE_S = 600.0
"""It outlasts each test."""
BRIEF_S = 1.0
"""The lease where it is to end."""
GRANTS_EACH_S = 0.02
REPORTS, GRANTS = topics("public/sluice", "f")


class Member(Heard):
    """A link that remembers what it was told, and grants as long as it leads and is not frozen."""

    def __init__(self, name: str, *brokers: Endpoint, lease_s: float = LEASE_S) -> None:
        super().__init__()
        self.token = b"first"
        self.granted_at = 0.0
        """When it granted last, by the loop's clock."""
        certificates = Certificates(Config(broker=str(brokers[0])))
        dialer = BrokerDialer(Targets(brokers), certificates, Counters(), sends_proxy_header=False)
        membership = Membership("public/sluice", "f", name, lease_s)
        self.link = TopicLink(dialer, membership, self.callbacks, ("token", lambda: self.token))
        self.granting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.link.start()
        self.granting = asyncio.get_running_loop().create_task(self._grant())

    def freeze(self) -> None:
        """Grant nothing any more."""
        if self.granting is not None:
            self.granting.cancel()

    async def stop(self) -> None:
        self.freeze()
        await self.link.stop()

    async def _grant(self) -> None:
        while True:
            if self.link.state == "leading":
                self.granted_at = asyncio.get_running_loop().time()
                self.link.grant(b"g " + self.link.client.name.encode())
            await asyncio.sleep(GRANTS_EACH_S)


class World:
    """Brokers and members, all of which are stopped in the end."""

    def __init__(self) -> None:
        self.brokers: list[ScriptedBroker] = []
        self.members: list[Member] = []

    async def broker(self) -> tuple[ScriptedBroker, Endpoint]:
        self.brokers.append(ScriptedBroker())
        return self.brokers[-1], await self.brokers[-1].start()

    async def join(self, name: str, *brokers: Endpoint, lease_s: float = LEASE_S) -> Member:
        self.members.append(Member(name, *brokers, lease_s=lease_s))
        await self.members[-1].start()
        return self.members[-1]

    async def three(
        self, first_s: float = LEASE_S, second_s: float = LEASE_S, third_s: float = LEASE_S
    ) -> tuple[ScriptedBroker, Member, Member, Member]:
        """A broker, the member that leads, and two in line; each with its lease."""
        broker, at = await self.broker()
        first = await self.join("a", at, lease_s=first_s)
        await until(lambda: first.link.state == "leading")
        second = await self.join("b", at, lease_s=second_s)
        await until(lambda: len(broker.topic(GRANTS).line) == 1)
        third = await self.join("c", at, lease_s=third_s)
        await until(lambda: len(broker.topic(GRANTS).line) == 2)
        await until(lambda: all(each.link.state == "following" and each.grants for each in (second, third)))
        return broker, first, second, third

    def leading(self) -> list[Member]:
        return [each for each in self.members if each.link.state == "leading"]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    for member in world.members:
        await member.stop()
    for broker in world.brokers:
        broker.stop()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_the_first_in_line_leads_and_reports_reach_it_only(world: World) -> None:
    broker, first, second, third = await world.three()
    await until(lambda: broker.topic(REPORTS).consumers)
    assert second.link.report(b"r")
    await until(lambda: first.reports == [b"r"])
    assert not second.link.grant(b"not leading")
    assert second.reports == third.reports == []
    assert set(second.grants) == set(third.grants) == {b"g a"}
    await until(lambda: len(first.asked) > 2)
    assert first.asked == sorted(set(first.asked))
    assert second.asked == third.asked == []
    assert first.turns == ["lead"]


async def test_the_next_in_line_leads_when_the_connection_of_the_first_ends(world: World) -> None:
    broker, first, second, third = await world.three()
    await first.stop()
    await until(lambda: second.link.state == "leading")
    assert first.turns == ["lead", "unlead"]
    assert third.turns == []
    assert broker.topic(GRANTS).owner is not None


async def test_one_leads_again_when_all_connections_end(world: World) -> None:
    broker, first, second, third = await world.three()
    broker.drop()
    await until(lambda: first.turns[:2] == ["lead", "unlead"])
    await until(lambda: len(world.leading()) == 1 and all(each.link.state != "connecting" for each in world.members))
    assert sum(each.link.counts.takeovers for each in (first, second, third)) == 2
    assert all(each.link.counts.reconnects >= 3 for each in world.members)


async def test_a_coordinator_that_hears_nothing_of_its_own_gives_access_up(world: World) -> None:
    broker, first, second, third = await world.three(BRIEF_S)
    broker.topic(GRANTS).consumers.clear()  # nobody hears grants any more, and nobody is told
    await until(lambda: first.turns == ["lead", "unlead"])
    await until(lambda: broker.seen_of(CommandCloseProducer))
    await until(lambda: second.turns or third.turns)


async def test_a_coordinator_that_is_fenced_out_untold_gives_access_up(world: World) -> None:
    broker, first, second, _ = await world.three(BRIEF_S)
    topic = broker.topic(GRANTS)
    peer, producer, request = topic.line.pop(0)
    assert topic.owner is not None
    former, theirs = topic.owner
    former.topics[theirs] = "elsewhere"  # its grants get receipts, and reach nobody
    topic.owner = peer, producer
    peer.admit(producer, request)
    await until(lambda: second.link.state == "leading")
    await until(lambda: first.turns == ["lead", "unlead"])
    assert world.leading() == [second]


async def test_a_silent_coordinator_is_fenced_out(world: World) -> None:
    """By the member with the shortest lease; its own is over no more than that of a process that stands still."""
    broker, first, second, third = await world.three(second_s=BRIEF_S)
    first.freeze()
    await until(lambda: second.link.state == "leading")
    silent_s = asyncio.get_running_loop().time() - first.granted_at
    assert silent_s >= topic_link.SILENT_LEASES * BRIEF_S
    await until(lambda: len(broker.topic(GRANTS).line) == 1)  # the third was fenced out of the line, and is back
    assert (first.turns, second.turns, third.turns) == (["lead"], ["lead"], [])
    assert first.link.grant(b"late")
    await until(lambda: first.turns == ["lead", "unlead"])
    assert not {b"late"} & {*second.grants, *third.grants}


async def test_topics_are_found_where_a_redirect_leads(world: World) -> None:
    broker, at = await world.broker()
    server, there = await world.broker()
    broker.serves = there
    member = await world.join("a", at)
    await until(lambda: member.link.state == "leading" and member.grants)
    assert set(server.topics) == {REPORTS, GRANTS}
    assert broker.topics == {}


async def test_topics_are_reached_through_a_proxy_that_says_so(world: World) -> None:
    proxy, at = await world.broker()
    proxy.serves, proxy.proxies = Endpoint("pulsar", "broker.example", 6650), True
    member = await world.join("a", at)
    await until(lambda: member.link.state == "leading" and member.grants)
    assert {each.proxy_to_broker_url for each in proxy.seen_of(CommandConnect)} == {"", "broker.example:6650"}


async def test_redirects_in_a_circle_end(world: World) -> None:
    broker, at = await world.broker()
    broker.serves = at
    member = await world.join("a", at)
    await until(lambda: "redirected 10 times" in member.link.client.last_error)
    assert member.link.state == "connecting"
    assert member.link.refused


async def test_a_challenge_is_answered_with_what_is_shown_now(world: World) -> None:
    broker, at = await world.broker()
    broker.challenge = True
    member = await world.join("a", at)
    await until(lambda: member.link.state == "leading")
    assert broker.seen_of(CommandConnect)[0].auth_data == b"first"
    member.token = b"second"
    broker.drop()
    await until(lambda: member.turns[-2:] == ["unlead", "lead"])
    responses = [each.response.auth_data for each in broker.seen_of(CommandAuthResponse)]
    assert (responses[0], responses[-1]) == (b"first", b"second")


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff"]
)
async def test_garbage_for_a_greeting_is_an_error_and_tried_again(world: World, greeting: bytes) -> None:
    broker, at = await world.broker()
    broker.greeting = greeting
    member = await world.join("a", at)
    await until(lambda: member.link.counts.reconnects >= 3)
    assert member.link.state == "connecting"
    assert member.link.client.last_error
    assert not member.link.report(b"r")
    assert member.link.counts.dropped["disconnected"] == 1
    broker.greeting = b""
    await until(lambda: member.link.state == "leading")


async def test_garbage_on_the_way_ends_the_connection_and_the_lead(world: World) -> None:
    broker, first, *_ = await world.three()
    for each in list(broker.peers):
        each.transport.write(b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff")
    await until(lambda: first.turns[:2] == ["lead", "unlead"])
    await until(lambda: len(world.leading()) == 1)


async def test_a_silent_broker_is_left_and_is_not_one_that_refuses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_connection, "PING_S", 0.1)
    monkeypatch.setattr(pulsar_connection, "OPEN_S", 0.3)
    broker, at = await world.broker()
    member = await world.join("a", at)
    await until(lambda: member.link.state == "leading")
    broker.is_silent = True
    await until(lambda: member.turns == ["lead", "unlead"] and member.link.state == "connecting")
    await until(lambda: member.link.client.last_error == "no answer in time")
    assert not member.link.refused
    broker.is_silent = False
    await until(lambda: member.link.state == "leading")


async def test_a_broker_that_refuses_is_one_that_refuses(world: World) -> None:
    broker, at = await world.broker()
    broker.refuses_producers = "sluice is not authorized"
    member = await world.join("a", at)
    await until(lambda: "sluice is not authorized" in member.link.client.last_error and member.link.refused)
    assert member.turns == []
    assert "sluice is not authorized" in member.link.problem
    assert "pulsar-admin namespaces grant-permission public/sluice --role ROLE" in member.link.problem
    broker.refuses_producers = ""
    await until(lambda: member.link.state == "leading")
    assert member.link.problem == ""


async def test_nothing_is_sent_by_a_producer_that_the_broker_has_not_opened_yet(world: World) -> None:
    broker, at = await world.broker()
    asked: list[CommandProducer] = []

    def take(_peer: Peer, command: Any) -> bool:
        asked.extend([command] if isinstance(command, CommandProducer) else [])
        return isinstance(command, CommandProducer)

    broker.takes = take
    member = await world.join("a", at)
    await until(lambda: {command.topic for command in asked} == {REPORTS, GRANTS} and broker.topic(GRANTS).consumers)
    assert member.link.state == "connecting"
    assert not member.link.report(b"r")
    assert member.link.counts.dropped["disconnected"] == 1


async def test_nobody_listens_where_the_broker_was(world: World) -> None:
    broker, at = await world.broker()
    member = await world.join("a", at)
    await until(lambda: member.link.state == "leading")
    broker.stop()
    await until(lambda: member.link.refused and member.turns == ["lead", "unlead"])


async def test_tries_are_never_further_apart_than_a_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []

    def without_a_pause(attempt: int, most_s: float) -> float:
        asked.append((attempt, most_s))
        return 0.0

    monkeypatch.setattr(pulsar_connection, "backoff", without_a_pause)
    broker, at = await world.broker()
    broker.stop()
    await world.join("a", at, lease_s=BRIEF_S)
    await until(lambda: max(asked, default=(0, 0.0))[0] > 20)
    assert {most for _, most in asked} == {BRIEF_S}


def test_pauses_double_until_they_are_the_longest() -> None:
    for attempt in range(2000):
        longest = min(2.0, 0.05 * 2 ** min(attempt, 6))
        assert longest / 2 <= backoff(attempt, 2.0) <= longest


async def test_messages_that_are_none_of_the_fleets_are_dropped_and_counted(world: World) -> None:
    broker, _, second, _ = await world.three()
    before = second.link.counts.dropped.copy()

    def entry(message: bytes, **more: object) -> bytes:
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
        for name, value in more.items():
            setattr(metadata, name, value)
        header = metadata.SerializeToString()
        return len(header).to_bytes(4, "big") + header + message

    for foreign in (b"", b"\0", b"\xff" * 40, b"\x0e\x01", entry(b"m", num_messages_in_batch=1), entry(b"m")[:9]):
        broker.publish(GRANTS, foreign)
    broker.publish(GRANTS, entry(b"m", compression=1))
    broker.publish(GRANTS, entry(b"m" * (MOST_MESSAGE + 1)))
    broker.publish(GRANTS, entry(b"good"))
    broker.publish(GRANTS, b"\x0e\x01\0\0\0\0" + entry(b"with a checksum"))
    broker.publish(GRANTS, b"\x0e\x02\0\0\0\x02\x01\x02" + entry(b"with the broker's header"))
    await until(lambda: b"with the broker's header" in second.grants)
    assert {b"good", b"with a checksum"} <= set(second.grants)
    assert second.link.counts.dropped - before == {"foreign": 7, "oversized": 1}


async def test_messages_that_are_too_large_are_not_sent(world: World) -> None:
    _, first, second, _ = await world.three()
    assert first.link.grant(b"g" * MOST_MESSAGE)
    assert not first.link.grant(b"g" * (MOST_MESSAGE + 1))
    assert not second.link.report(b"r" * (MOST_MESSAGE + 1))
    assert first.link.counts.dropped["oversized"] == second.link.counts.dropped["oversized"] == 1


async def test_what_a_broker_does_not_read_is_bounded(world: World) -> None:
    broker, first, *_ = await world.three()
    first.freeze()
    for each in broker.peers:
        each.transport.pause_reading()
    sent = 0
    while first.link.grant(b"g" * MOST_MESSAGE):
        sent += 1
        assert sent < 100
        await asyncio.sleep(0)
    assert sent * MOST_MESSAGE >= pulsar_connection.MOST_UNSENT
    assert first.link.counts.dropped["slow"] == 1


async def test_a_broker_is_answered_when_it_pings_and_left_when_its_topics_migrate(world: World) -> None:
    broker, first, *_ = await world.three()
    owner = broker.topic(GRANTS).owner
    assert owner is not None
    owner[0].transport.write(encode(CommandPing()))
    await until(lambda: any(each.DESCRIPTOR.name == "CommandPong" for each in broker.seen))
    owner[0].say(CommandTopicMigrated(resource_id=1, resource_type=CommandTopicMigrated.Producer))
    await until(lambda: first.turns[:2] == ["lead", "unlead"])


# ---- A broker that is broken, or has been taken over


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (CommandLookupTopic, CommandSuccess),
        (CommandLookupTopic, CommandProducerSuccess),
        (CommandSubscribe, CommandProducerSuccess),
        (CommandSubscribe, CommandLookupTopicResponse),
        (CommandProducer, CommandSuccess),
        (CommandProducer, CommandLookupTopicResponse),
    ],
)
async def test_an_answer_of_another_kind_is_an_error_and_tried_again(
    world: World, asked: type[Any], answer: type[Any]
) -> None:
    broker, at = await world.broker()

    def take(peer: Peer, command: Any) -> bool:
        if not isinstance(command, asked):
            return False
        more = {"producer_name": "x"} if answer is CommandProducerSuccess else {}
        peer.say(answer(request_id=command.request_id, **more))
        return True

    broker.takes = take
    member = await world.join("a", at)
    await until(lambda: member.link.counts.reconnects >= 3)
    assert f"answers {asked.DESCRIPTOR.name} by {answer.DESCRIPTOR.name}" in member.link.client.last_error
    broker.takes = lambda _peer, _command: False
    await until(lambda: member.link.state == "leading" and member.grants)


async def test_redirects_to_ever_new_addresses_leave_few_connections(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_connection, "backoff", lambda _attempt, _most_s: 0.01)
    broker, at = await world.broker()
    names = ("".join(each) for each in product(*((low, low.upper()) for low in "localhost")))

    def take(peer: Peer, command: Any) -> bool:
        if not isinstance(command, CommandLookupTopic):
            return False
        answer = CommandLookupTopicResponse(request_id=command.request_id, authoritative=True)
        answer.response = CommandLookupTopicResponse.Redirect
        answer.broker_service_url = f"pulsar://{next(names)}:{at.port}"
        peer.say(answer)
        return True

    broker.takes = take
    member = await world.join("a", at)
    await until(lambda: len(broker.seen_of(CommandConnect)) > 150)
    assert len(member.link.client._connections) <= pulsar_connection.MOST_IDLE + 4
    await until(lambda: len(broker.peers) <= pulsar_connection.MOST_IDLE + 4)


async def test_where_one_broker_answers_no_lookup_another_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_connection, "OPEN_S", 0.3)
    (mute, at), (_, there) = await world.broker(), await world.broker()
    mute.takes = lambda _peer, command: isinstance(command, CommandLookupTopic)
    member = await world.join("a", at, there)
    await until(lambda: member.link.state == "leading" and member.grants)


async def test_silent_broker_of_one_topic_does_not_delay_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_connection, "OPEN_S", 600)
    (broker, at), (silent, there) = await world.broker(), await world.broker()
    silent.is_silent = True

    def take(peer: Peer, command: Any) -> bool:
        if not isinstance(command, CommandLookupTopic) or command.topic != REPORTS:
            return False
        answer = CommandLookupTopicResponse(request_id=command.request_id, authoritative=True)
        answer.response, answer.broker_service_url = CommandLookupTopicResponse.Connect, str(there)
        peer.say(answer)
        return True

    broker.takes = take
    member = await world.join("a", at)
    await until(lambda: member.link.state == "leading" and silent.peers)
    broker.drop()
    await until(lambda: member.turns == ["lead", "unlead", "lead"])


async def test_access_that_is_given_to_a_producer_that_was_left_is_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_connection, "OPEN_S", 0.1)
    broker, at = await world.broker()
    asked: list[tuple[Peer, Any]] = []

    def take(peer: Peer, command: Any) -> bool:
        if not isinstance(command, CommandProducer) or command.producer_access_mode == 0:
            return False
        for earlier, left in asked:  # as late as can be: when the next one is asked for
            earlier.say(CommandProducerSuccess(request_id=left.request_id, producer_name="x", producer_ready=True))
        asked.append((peer, command))
        return True

    broker.takes = take
    member = await world.join("a", at)
    await until(lambda: len(asked) >= 4)
    assert asked[0][1].producer_access_mode == ProducerAccessMode.Value("WaitForExclusive")
    assert member.turns == []
    assert all(len(each.waiting) <= 1 for each in member.link.client._connections.values())


async def test_who_cannot_say_how_much_may_come_connects_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, _, second, _ = await world.three()
    peers = len(broker.seen_of(CommandConnect))
    with monkeypatch.context() as patched:
        patched.setattr(pulsar_connection, "MOST_UNSENT", -1)  # as if the broker had read nothing for long
        for _ in range(600):
            broker.publish(GRANTS, b"\0")
        await until(lambda: second.link.counts.reconnects)
    await until(lambda: len(broker.seen_of(CommandConnect)) > peers)
    await until(lambda: len(world.leading()) == 1 and second.link.state != "connecting")


async def test_a_consumer_that_a_broker_has_lost_is_made_anew(world: World) -> None:
    broker, *members = await world.three(BRIEF_S, BRIEF_S, BRIEF_S)
    broker.topic(GRANTS).consumers.clear()  # and nobody is told
    for each in members:
        each.grants.clear()
    await until(lambda: all(each.grants for each in members))
    assert broker.seen_of(CommandCloseConsumer)


async def test_a_coordinator_that_does_not_hear_its_own_reports_listens_anew(world: World) -> None:
    broker, first, second, _ = await world.three(BRIEF_S)
    await until(lambda: broker.topic(REPORTS).consumers)
    broker.topic(REPORTS).consumers.clear()  # and nobody is told

    async def report() -> None:
        while True:
            for each in first, second:
                each.link.report(each.link.client.name.encode())
            await asyncio.sleep(GRANTS_EACH_S)

    reporting = asyncio.get_running_loop().create_task(report())
    await until(lambda: b"b" in first.reports)
    reporting.cancel()
    assert first.turns == ["lead"]


async def test_what_is_about_ids_of_nobody_changes_nothing(world: World) -> None:
    broker, first, second, third = await world.three()
    turns = [each.turns.copy() for each in (first, second, third)]
    for peer, number in product(broker.peers, (0, 99, 2**63, 2**64 - 1)):
        peer.say(CommandCloseProducer(producer_id=number, request_id=number))
        peer.say(CommandCloseConsumer(consumer_id=number, request_id=number))
        peer.say(CommandSendReceipt(producer_id=number, sequence_id=number))
        peer.say(CommandSuccess(request_id=number))
        peer.say(CommandProducerSuccess(request_id=number, producer_name="x", producer_ready=True))
        peer.say(CommandError(request_id=number, error=ServerError.UnknownError, message="x"))
        peer.deliver(number % 2**63, b"\0" * 100, 1)
    before = len(second.grants)
    await until(lambda: len(second.grants) > before + 3)
    assert [each.turns for each in (first, second, third)] == turns
    assert all(each.link.counts.reconnects == 0 for each in world.members)


@pytest.mark.parametrize("frame", [b"\0\0\0\0", b"\0\0\0\x03abc", b"\0\0\0\x04\0\0\0\x05", b"\x7f\xff\xff\xff"])
async def test_frames_of_no_size_end_the_connection_and_no_more(world: World, frame: bytes) -> None:
    broker, first, *_ = await world.three()
    for each in list(broker.peers):
        each.transport.write(frame)
    await until(lambda: first.turns[:2] == ["lead", "unlead"])
    await until(lambda: len(world.leading()) == 1)


async def test_long_reasons_are_cut_and_long_metadata_is_not_read(world: World) -> None:
    broker, at = await world.broker()
    broker.refuses_producers = "\N{SNOWMAN}\x1b\n" * 1_000_000
    member = await world.join("a", at)
    await until(lambda: "refuses" in member.link.client.last_error)
    assert len(member.link.client.last_error) < 2000
    assert member.link.client.last_error.isprintable()
    for size, is_read in ((1000, True), (pulsar_connection.MOST_METADATA, False)):
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key="k" * size)
        header = metadata.SerializeToString()
        entry = pulsar_connection._entry((0, 0), len(header).to_bytes(4, "big") + header + b"m")
        assert (entry is not None) is is_read


async def test_who_floods_a_topic_leaves_others_their_turn_and_fills_no_memory(world: World) -> None:
    """Each message is dropped when it is whole; what is read in one turn of the loop is a few KiB."""
    broker, _, second, _ = await world.three()
    before, turns = second.link.counts.dropped["foreign"], 0
    frames = 300
    for _ in range(frames):
        broker.publish(GRANTS, b"\xff" * 10_000)
    most = 0
    async with asyncio.timeout(PATIENCE_S):
        while (dropped := second.link.counts.dropped["foreign"] - before) < frames:
            await asyncio.sleep(0)
            turns += 1
            most = max(most, second.link.counts.dropped["foreign"] - before - dropped)
    assert most <= 2 * 3  # two reads at most, as three frames end in a chunk of 16 KiB and what is left of one before
    assert turns >= frames * 10_000 / (2 * 16 * 1024)
    assert all(len(each._cutter._buffer) <= 32 * 1024 for each in second.link.client._connections.values())


def _anything(random: Random, request: int) -> Any:
    """An answer to a request, right or not, or something that nobody has asked."""
    number = random.choice([0, 1, 5, 30, 2**63, 2**64 - 1])
    lookup = CommandLookupTopicResponse(request_id=request)
    lookup.response = random.choice([0, 1, 2])  # type: ignore[assignment]
    lookup.broker_service_url = random.choice(["pulsar://127.0.0.1:1", "pulsar://x..y:1", "", "http://x", "a" * 400])
    return random.choice(
        [
            lookup,
            CommandSuccess(request_id=request),
            CommandProducerSuccess(request_id=request, producer_name="x", producer_ready=random.random() < 0.5),
            CommandError(request_id=request, error=ServerError.UnknownError, message="x"),
            CommandCloseProducer(producer_id=number, request_id=number),
            CommandCloseConsumer(consumer_id=number, request_id=number),
            CommandSendReceipt(producer_id=number, sequence_id=number),
            CommandPing(),
        ]
    )


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_a_broker_says_members_share_again_when_it_does_what_it_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(pulsar_connection, "OPEN_S", 0.3)
    monkeypatch.setattr(pulsar_connection, "backoff", lambda _attempt, _most_s: 0.01)
    raised: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: raised.append(context))
    random, (broker, *members) = Random(seed), await world.three(BRIEF_S, BRIEF_S, BRIEF_S)

    def take(peer: Peer, command: Any) -> bool:
        if random.random() < 0.6:
            return False
        peer.say(_anything(random, getattr(command, "request_id", 0)))
        return True

    broker.takes = take
    for _ in range(200):
        for peer in random.sample(broker.peers, min(1, len(broker.peers))):
            chance = random.random()
            if chance < 0.02:
                peer.transport.write(random.choice([b"\0\0\0\0", b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff"]))
            elif chance < 0.9:
                peer.say(_anything(random, random.randrange(40)))
            else:
                peer.deliver(random.randrange(20), random.randbytes(30), 1)
        await asyncio.sleep(0.005)
    broker.takes = lambda _peer, _command: False
    for each in members:
        each.grants.clear()
    await until(lambda: len(world.leading()) == 1 and all(each.grants for each in members))
    await until(lambda: all(each.link.state != "connecting" for each in members))
    gc.collect()
    assert raised == []


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (pulsar_connection.BrokerStream, "_connect"),
        (pulsar_connection, "backoff"),
        (topic_link._Candidate, "_granted"),
        (topic_link._Candidate, "ready"),
    ],
)
async def test_a_defect_is_told_and_counted_and_the_link_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    broker, at = await world.broker()
    defect = Defect(owner, name)
    defect.plant(monkeypatch)
    with capture_logs() as logs:
        member = await world.join("a", at)
        if name == "backoff":
            await until(lambda: member.link.state == "leading")
            broker.drop()
        await until(lambda: defect.is_over)
        member.grants.clear()
        await until(lambda: member.link.state == "leading" and member.grants)
    await until(lambda: member.link.report(b"r") and member.reports)
    (error,) = errors_told(logs)
    assert "defect of Sluice" in error
    assert member.link.counts.defects == 1


async def test_a_defect_that_stays_is_tried_again_with_pauses_and_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, at = await world.broker()
    tries: list[float] = []

    async def fail(_stream: object) -> None:
        tries.append(time.monotonic())
        raise TypeError

    monkeypatch.setattr(pulsar_connection.BrokerStream, "_connect", fail)
    with capture_logs() as logs:
        member = await world.join("a", at)
        await until(lambda: member.link.counts.defects >= 9)  # of three streams
    assert len([line for line in logs if line["log_level"] == "error"]) == 1
    assert tries[8] - tries[0] >= 0.025 + 0.05
    assert member.link.state == "connecting"
