"""From clients' connections to the brokers'."""

from collections.abc import Iterator
from typing import Any

import pytest

from proxy.brokers.targets import Targets
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.observe.connection import Connection
from proxy.session.broker_connector import PASSED_OVER_S, BrokerConnector, BrokerRotation
from proxy.session.events import CloseReason, SessionEnd
from proxy.session.transport import PeerTransport, TransportContext, TransportOwner
from proxy.slices import Slices
from proxy.tls.certificates import Certificates
from tests.manual_clock import ManualClock
from tests.proxy.endpoints import broker_at
from tests.proxy.manual_loop import Dial, ManualLoop


class Client:
    """Who wants to be connected."""

    def __init__(self) -> None:
        self.connection = Connection(1)
        self.ends: list[tuple[CloseReason, str]] = []

    def refuse_client(self, end: SessionEnd) -> None:
        self.ends.append((end.close_reason, end.detail))


class _Owner(TransportOwner):
    """Keeps what it gets."""

    def opened(self, transport: PeerTransport) -> None:
        pass


class Rig:
    """A dialler with a network of its own."""

    def __init__(self, **settings: Any) -> None:
        self.loop = ManualLoop(ManualClock())
        self.dials: list[Dial] = []
        self.loop.answers = self.dials.append
        self.client = Client()
        config = Config.model_validate({"broker": "pulsar://10.0.0.1:6650", **settings})
        targets, counters = Targets(config.broker), Counters()
        targets.learn(broker_at("broker:6650"))
        shared = TransportContext(counters, Slices(counters))
        self.peer = PeerTransport("broker", _Owner(), shared)
        self.dialler = BrokerConnector(config, targets, Certificates(config), shared, counters)

    def dial(self, wanted: str | None, client: Client | None = None) -> None:
        target = None if wanted is None else broker_at(wanted)
        self.loop.run(self.dialler.dial, client or self.client, target, self.peer)

    def accept(self) -> None:
        """The broker that is dialled is there, and accepts the client."""
        self.loop.run(self.dials[-1].accept)
        self.loop.run(self.dialler.finish, self.client)

    def begin(self, client: Client | None = None) -> None:
        self.loop.run(self.dialler.begin, client or self.client)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(handshake_timeout="5s", connect_timeout="2s")
    yield rig
    rig.loop.settle()
    assert not rig.loop.timers, "no timer is left"
    assert not rig.loop.trouble
    rig.loop.close()


@pytest.mark.parametrize("named", [None, "10.0.0.1:6650", "pulsar+ssl://10.0.0.1:6650"])
def test_a_client_gets_the_broker_that_it_names_or_else_the_configured_one(rig: Rig, named: str | None) -> None:
    """By the scheme that all brokers are reached by: the client's says how it reaches the proxy."""
    rig.dial(named)
    assert [dial.address for dial in rig.dials] == [("10.0.0.1", 6650)]
    assert rig.client.connection.broker == "10.0.0.1:6650"
    rig.loop.run(rig.dials[0].accept)


BROKERS = ["pulsar://10.0.0.1:6650", "pulsar://10.0.0.2:6650", "pulsar://10.0.0.3:6650"]


@pytest.fixture
def of_three() -> Iterator[Rig]:
    rig = Rig(broker=BROKERS, connect_timeout="9s")
    yield rig
    rig.loop.settle()
    assert not rig.loop.timers, "no timer is left"
    assert not rig.loop.trouble
    rig.loop.close()


def test_dials_go_round_among_the_configured_brokers(of_three: Rig) -> None:
    for _ in range(4):
        of_three.dial(None)
        of_three.accept()
    assert [host for dial in of_three.dials for host in dial.address[:1]] == [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.1",
    ]


def test_a_broker_that_refuses_is_passed_over_at_once_and_afterwards(of_three: Rig) -> None:
    of_three.dial(None)
    of_three.loop.run(of_three.dials[0].fail, OSError("refused"))
    of_three.accept()
    assert not of_three.client.ends
    assert of_three.client.connection.broker == "10.0.0.2:6650"
    for _ in range(4):
        of_three.dial(None)
        of_three.accept()
    assert "10.0.0.1" not in {dial.address[0] for dial in of_three.dials[1:]}


def test_client_tries_the_broker_that_a_reload_leaves_once(of_three: Rig) -> None:
    """A reload leaves one broker, while a client has tried another one in vain."""
    of_three.begin()
    of_three.dial(None)
    of_three.loop.run(of_three.dials[0].accept)
    connector = of_three.dialler
    connector._targets.configure([broker_at("10.0.0.9:6650")])
    assert connector.has_another(of_three.client)
    of_three.dial(None)
    of_three.loop.run(of_three.dials[1].accept)
    assert of_three.dials[1].address[0] == "10.0.0.9"
    assert not connector.has_another(of_three.client)
    of_three.loop.run(connector.finish, of_three.client)


def test_a_broker_that_is_silent_leaves_time_for_the_others(of_three: Rig) -> None:
    of_three.dial(None)
    of_three.loop.advance(2.8)
    assert [dial.address[0] for dial in of_three.dials] == ["10.0.0.1", "10.0.0.2"]
    of_three.loop.run(of_three.dials[1].accept)
    assert of_three.dials[0].transport.is_closing()
    assert not of_three.client.ends


def test_where_none_answers_it_is_told_of_each_what_it_does(of_three: Rig) -> None:
    silent = "no connection within 4.05 s"
    of_three.dial(None)
    of_three.loop.run(of_three.dials[0].fail, OSError("refused"))
    of_three.loop.advance(8.5)
    assert of_three.client.ends == [
        (
            CloseReason.BROKER_UNREACHABLE,
            f"{BROKERS[0]}: refused; {BROKERS[1]}: {silent}; {BROKERS[2]}: {silent}",
        )
    ]


def test_who_leaves_while_several_are_tried_leaves_no_dial_behind(of_three: Rig) -> None:
    of_three.begin()
    of_three.dial(None)
    of_three.loop.run(of_three.dials[0].fail, OSError("refused"))
    of_three.loop.run(of_three.dialler.give_up, of_three.client)
    assert len(of_three.dials) == 2
    assert of_three.dials[1].transport.is_closing()
    assert not of_three.client.ends


def test_of_clients_that_come_later_one_tries_the_broker_that_was_passed_over() -> None:
    first, second = map(broker_at, BROKERS[:2])
    rotation = BrokerRotation(Targets((first, second)))
    rotation.failed(first, 0)
    assert [rotation.order(PASSED_OVER_S - 1)[0] for _ in range(3)] == [second] * 3
    firsts = [rotation.order(PASSED_OVER_S)[0] for _ in range(4)]
    assert firsts.count(first) == 1
    rotation.answered(first)
    assert {rotation.order(PASSED_OVER_S)[0] for _ in range(2)} == {first, second}


def test_brokers_that_all_failed_are_tried_all_the_same() -> None:
    brokers = tuple(map(broker_at, BROKERS))
    rotation = BrokerRotation(Targets(brokers))
    for each in brokers:
        rotation.failed(each, 0)
    assert sorted(rotation.order(1)) == sorted(brokers)


def test_turns_go_on_among_brokers_that_are_configured_later() -> None:
    first, second, third = map(broker_at, BROKERS)
    targets = Targets((first, second, third))
    rotation = BrokerRotation(targets)
    assert [rotation.order(0)[0] for _ in range(2)] == [first, second]
    targets.configure((third, first))
    assert [rotation.order(0)[0] for _ in range(3)] == [third, first, third]


def test_a_broker_that_answers_is_connected_and_nothing_is_said(rig: Rig) -> None:
    rig.dial("pulsar://10.0.0.1:6650")
    assert [dial.address for dial in rig.dials] == [("10.0.0.1", 6650)]
    rig.loop.run(rig.dials[0].accept)
    assert not rig.client.ends


def test_a_broker_with_a_name_is_looked_for(rig: Rig) -> None:
    rig.loop.names["broker"] = ["10.0.0.7"]
    rig.dial("pulsar://broker:6650")
    assert [dial.address for dial in rig.dials] == [("10.0.0.7", 6650)]
    rig.loop.run(rig.dials[0].accept)
    assert not rig.client.ends


def test_a_broker_that_is_not_allowed_is_not_dialled(rig: Rig) -> None:
    rig.dial("10.0.0.2:6650")
    assert not rig.dials
    assert [cause for cause, _detail in rig.client.ends] == [CloseReason.TARGET_REFUSED]


def test_a_broker_that_refuses_is_named(rig: Rig) -> None:
    rig.dial("10.0.0.1:6650")
    rig.loop.run(rig.dials[0].fail, OSError("refused"))
    assert rig.client.ends == [(CloseReason.BROKER_UNREACHABLE, "pulsar://10.0.0.1:6650: refused")]


def test_a_broker_that_says_nothing_is_given_up(rig: Rig) -> None:
    rig.dial("10.0.0.1:6650")
    rig.loop.advance(1.9)
    assert not rig.client.ends
    rig.loop.advance(0.2)
    assert rig.client.ends == [(CloseReason.BROKER_UNREACHABLE, "pulsar://10.0.0.1:6650: no connection within 2 s")]
    assert rig.dials[0].transport.is_closing()


@pytest.mark.parametrize("is_finished", [False, True])
def test_the_handshakes_time_runs_until_it_is_over(rig: Rig, *, is_finished: bool) -> None:
    rig.begin()
    assert rig.dialler.under_way == 1
    if is_finished:
        rig.dialler.finish(rig.client)
    rig.loop.advance(6)
    assert rig.client.ends == ([] if is_finished else [(CloseReason.HANDSHAKE_TIMEOUT, "not connected after 5 s")])
    assert rig.dialler.under_way == 0


def test_each_has_its_own_time(rig: Rig) -> None:
    early, late = Client(), Client()
    rig.begin(early)
    rig.loop.advance(4)
    rig.begin(late)
    rig.loop.advance(2)
    assert early.ends
    assert not late.ends
    rig.loop.advance(4)
    assert late.ends


def test_a_broker_that_greets_before_the_dialling_has_ended_stays_connected(rig: Rig) -> None:
    rig.begin()
    rig.dial("10.0.0.1:6650")

    def accept() -> None:
        rig.dials[0].accept()
        rig.dialler.finish(rig.client)

    rig.loop.run(accept)
    rig.loop.advance(10)
    assert not rig.dials[0].transport.is_closing()
    assert not rig.client.ends


def test_who_leaves_while_the_broker_is_dialled_is_not_connected_and_not_told(rig: Rig) -> None:
    rig.begin()
    rig.dial("10.0.0.1:6650")
    rig.loop.run(rig.dialler.give_up, rig.client)
    rig.loop.advance(10)
    assert rig.dials[0].transport.is_closing()
    assert not rig.client.ends


def test_giving_up_what_never_began_does_nothing(rig: Rig) -> None:
    rig.dialler.finish(rig.client)
    rig.dialler.give_up(rig.client)
    assert not rig.client.ends
