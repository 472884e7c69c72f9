"""From a client's connection to the broker's."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from limiter.testing import ManualClock
from proxy.brokers.targets import Targets
from proxy.config.model import Config
from proxy.sessions.dialling import Dialling
from proxy.sessions.ends import End, EndCause
from tests.proxy.manual_loop import Dial, ManualLoop


class Rig:
    """Dialling with a network of its own."""

    def __init__(self, **settings: Any) -> None:
        self.loop = ManualLoop(ManualClock())
        self.dials: list[Dial] = []
        self.loop.answers = self.dials.append
        self.ends: list[End] = []
        config = Config.model_validate({"broker": "pulsar://10.0.0.1:6650", **settings})
        self.dialling = Dialling(config, Targets([("10.0.0.1", 6650)]), self.ends.append)

    def dial(self, wanted: str) -> None:
        async def dial() -> None:
            await self.dialling.dial(wanted, asyncio.Protocol())

        self._task = self.loop.run(lambda: self.loop.create_task(dial()))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(handshake_timeout="5s", connect_timeout="2s")
    yield rig
    rig.loop.settle()
    assert not rig.loop.timers, "no timer is left"
    assert not rig.loop.trouble
    rig.loop.close()


def test_a_client_gets_the_broker_that_it_names_or_else_the_configured_one(rig: Rig) -> None:
    assert rig.dialling.wanted("b:1") == "b:1"
    assert rig.dialling.wanted(None) == "pulsar://10.0.0.1:6650"


def test_a_broker_that_answers_is_connected_and_nothing_is_said(rig: Rig) -> None:
    rig.dial("pulsar://10.0.0.1:6650")
    assert [dial.address for dial in rig.dials] == [("10.0.0.1", 6650)]
    rig.loop.run(rig.dials[0].accept)
    assert not rig.ends


def test_a_broker_that_is_not_allowed_is_not_dialled(rig: Rig) -> None:
    rig.dial("10.0.0.2:6650")
    assert not rig.dials
    assert [end.cause for end in rig.ends] == [EndCause.TARGET_REFUSED]


def test_a_broker_that_refuses_is_named(rig: Rig) -> None:
    rig.dial("10.0.0.1:6650")
    rig.loop.run(rig.dials[0].fail, OSError("refused"))
    assert rig.ends == [(EndCause.BROKER_UNREACHABLE, "10.0.0.1:6650: refused")]


def test_a_broker_that_says_nothing_is_given_up(rig: Rig) -> None:
    rig.dial("10.0.0.1:6650")
    rig.loop.advance(1.9)
    assert not rig.ends
    rig.loop.advance(0.2)
    assert rig.ends == [(EndCause.BROKER_UNREACHABLE, "10.0.0.1:6650: no connection within 2 s")]


@pytest.mark.parametrize("is_finished", [False, True])
def test_the_handshakes_time_runs_until_it_is_over(rig: Rig, *, is_finished: bool) -> None:
    rig.loop.run(rig.dialling.begin)
    if is_finished:
        rig.dialling.finish()
    rig.loop.advance(6)
    assert rig.ends == ([] if is_finished else [(EndCause.HANDSHAKE_TIMEOUT, "not connected after 5 s")])


def test_finishing_what_never_began_does_nothing(rig: Rig) -> None:
    rig.dialling.finish()
    assert not rig.ends
