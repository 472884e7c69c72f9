"""From clients' connections to the brokers'."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.brokers.targets import Targets
from proxy.config.model import Config
from proxy.session.broker_connector import BrokerConnector
from proxy.session.events import CloseReason, SessionEnd
from tests.manual_clock import ManualClock
from tests.proxy.endpoints import broker_at
from tests.proxy.manual_loop import Dial, ManualLoop


class Client:
    """Who wants to be connected."""

    def __init__(self) -> None:
        self.ends: list[tuple[CloseReason, str]] = []

    def not_connected(self, end: SessionEnd) -> None:
        self.ends.append((end.cause, end.detail))


class Rig:
    """A dialler with a network of its own."""

    def __init__(self, **settings: Any) -> None:
        self.loop = ManualLoop(ManualClock())
        self.dials: list[Dial] = []
        self.loop.answers = self.dials.append
        self.client = Client()
        config = Config.model_validate({"broker": "pulsar://10.0.0.1:6650", **settings})
        self.dialler = BrokerConnector(config, Targets([broker_at("10.0.0.1:6650"), broker_at("broker:6650")]))

    def dial(self, wanted: str, client: Client | None = None) -> None:
        self.loop.run(self.dialler.dial, client or self.client, broker_at(wanted), asyncio.Protocol())

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


def test_a_client_gets_the_broker_that_it_names_or_else_the_configured_one(rig: Rig) -> None:
    assert rig.dialler.wanted(broker_at("b:1")) == broker_at("b:1")
    assert rig.dialler.wanted(None) == broker_at("pulsar://10.0.0.1:6650")


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
