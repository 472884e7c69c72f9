"""Three `sluice serve` of one fleet before the stand-in broker: they form, share, leave and hold one change."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pulsar
import pytest

from adminrest.client import AdminError
from tests.loadgen.standin.conftest import new_client, running_broker
from tests.real.sluice_process import SluiceProcess, launch_sluice
from tests.waiting import wait_for

NAMES = ("sluice-1", "sluice-2", "sluice-3")
RATE, BURST = 200, 200
TOPIC = "persistent://acme/shop/orders"
LIMITER = "publish tenant acme"


class Members:
    """Members of one fleet, by name."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.running: dict[str, SluiceProcess] = {}
        self._folder, self._broker = folder, broker
        self._starts = 0

    def start(self, *names: str) -> None:
        """Start members, and return when all that run follow one coordinator that knows them."""
        for name in names:
            self._starts += 1
            limits = {"tenants": {"acme": {"publish": {"messages": f"{RATE}/s"}}}}
            config = {"proxy_id": name, "limits": limits, "fleet": {"name": "front", "cycle": 0.05, "lease": 0.6}}
            self.running[name] = launch_sluice(self._folder / str(self._starts), f"pulsar://{self._broker}", config)
        for member in self.running.values():
            member.wait_ready()
        self.wait_settled()

    def wait_settled(self) -> None:
        wait_for(self._is_settled, evidence=self._said)

    def said(self, name: str) -> dict[str, Any]:
        """Return what a member says of its fleet; it says nothing while it ends."""
        try:
            answer: dict[str, Any] = self.running[name].get("/sluice/fleet")
        except AdminError:
            return {}
        return answer

    def coordinator(self) -> str:
        return next(name for name in self.running if self.said(name)["state"] == "leading")

    def share(self, name: str) -> float:
        return float(sum(share["share"] for share in self.said(name).get("shares", ()) if share["limiter"] == LIMITER))

    def end(self, name: str) -> SluiceProcess:
        ended = self.running.pop(name)
        ended.stop()
        return ended

    def signal(self, name: str, number: signal.Signals) -> None:
        process = self.running[name].process
        assert process is not None
        os.kill(process.pid, number)

    def _is_settled(self) -> bool:
        answers = [self.said(name) for name in self.running]
        return (
            len({answer.get("coordinator") for answer in answers}) == 1
            and all(
                answer.get("members_known") == len(answers) and answer["state"] != "connecting" for answer in answers
            )
            and all(answer["policies"]["state"] == "in_step" for answer in answers)
        )

    def _said(self) -> object:
        return {name: self.said(name) for name in self.running}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    with running_broker() as (_, broker):
        fleet = Members(tmp_path_factory.mktemp("fleet"), broker)
        yield fleet
        for name in list(fleet.running):
            fleet.end(name)


@pytest.fixture
def members(fleet: Members) -> Members:
    """All of them run, whatever the test before did to one."""
    fleet.start(*(name for name in NAMES if name not in fleet.running))
    return fleet


class Load:
    """A greedy producer of one member; `receipts` counts what was passed."""

    def __init__(self, member: SluiceProcess) -> None:
        self.receipts = 0
        self._client = new_client(member.service_url.removeprefix("pulsar://"))
        self._producer = self._client.create_producer(TOPIC, send_timeout_millis=0, max_pending_messages=0)

    def offer(self, messages: int) -> None:
        for _ in range(messages):
            self._producer.send_async(b"load", self._received)

    def _received(self, result: pulsar.Result, _: object) -> None:
        self.receipts += result == pulsar.Result.Ok

    def close(self) -> None:
        """At once: `Client.close` would wait for what the limit holds."""
        self._client.shutdown()


def is_equal(members: Members, names: tuple[str, ...]) -> bool:
    shares = [members.share(name) for name in names]
    return sum(shares) > 0.99 and max(shares) - min(shares) < 0.02


def test_members_share_one_limit_and_take_over_what_one_leaves(members: Members) -> None:
    with closing(Load(members.running[NAMES[0]])) as first, closing(Load(members.running[NAMES[1]])) as other:
        began = time.monotonic()
        for load in (first, other):
            load.offer(2000)
        wait_for(lambda: is_equal(members, NAMES[:2]), evidence=lambda: [members.share(name) for name in NAMES])
        passed = first.receipts + other.receipts
        assert 0 < passed <= BURST + RATE * (time.monotonic() - began) + len(NAMES)
        members.end(NAMES[0])  # its client waits for it to come back
        wait_for(lambda: members.share(NAMES[1]) == 1)
    members.wait_settled()


def test_change_through_one_member_holds_in_all_and_later_ones(members: Members) -> None:
    place = "/sluice/limits?direction=publish&setting=tenant&name=acme"
    members.end(NAMES[2])
    members.running[NAMES[0]].send("PUT", place, {"messages": "7/s"})
    members.running[NAMES[0]].send("PUT", place, {"messages": "9/s"})
    wait_for(lambda: members.running[NAMES[1]].get(place)["limit"] == {"messages": 9})
    members.start(NAMES[2])
    assert members.running[NAMES[2]].get(place)["limit"] == {"messages": 9}
    members.running[NAMES[2]].send("DELETE", place)
    wait_for(lambda: all(member.get(place)["limit"] == {"messages": RATE} for member in members.running.values()))


def test_another_member_coordinates_when_the_coordinator_ends(members: Members) -> None:
    first = members.coordinator()
    members.end(first)
    members.wait_settled()
    assert members.coordinator() != first


def test_coordinator_that_stands_still_is_fenced_out_and_follows(members: Members) -> None:
    first = members.coordinator()
    others = [name for name in NAMES if name != first]
    members.signal(first, signal.SIGSTOP)
    try:
        wait_for(lambda: any(members.said(name)["state"] == "leading" for name in others))
    finally:
        members.signal(first, signal.SIGCONT)
    members.wait_settled()
    assert members.coordinator() != first
