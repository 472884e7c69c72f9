"""Which brokers clients may be connected to."""

import asyncio
import ipaddress
import tracemalloc
from collections.abc import Iterator

import pytest

from protocol.endpoint import Endpoint, EndpointError
from proxy.brokers import targets
from proxy.brokers.targets import SIBLINGS_S, SiblingBrokers, TargetRefusedError, Targets
from tests.manual_clock import ManualClock
from tests.proxy.endpoints import broker_at
from tests.proxy.manual_loop import ManualLoop


@pytest.fixture
def loop() -> Iterator[ManualLoop]:
    loop = ManualLoop(ManualClock())
    loop.names = {"broker": ["192.0.2.1"], "b1.example": ["10.1.0.1"], "b2.example": ["8.8.8.8", "10.2.0.1"]}
    yield loop
    loop.close()


def resolve(loop: ManualLoop, allowed: Targets, wanted: str) -> list[tuple[str, int]]:
    task: asyncio.Task[list[Endpoint]] = loop.run(lambda: loop.create_task(allowed.resolve(broker_at(wanted))))
    return [(each.host, each.port) for each in task.result()]


@pytest.mark.parametrize("text", ["PULSAR+SSL://b:6651", "tls://b:6651", "http://b:80", "b:1,c:1", "b:0", "b"])
def test_a_broker_that_cannot_be_spoken_with_is_named_by_nobody(text: str) -> None:
    with pytest.raises(EndpointError, match="write "):
        broker_at(text)


def test_of_what_clients_name_nothing_long_is_remembered_or_repeated() -> None:
    host = "x" * 1_000_000
    tracemalloc.start()
    try:
        for number in range(5):
            with pytest.raises(EndpointError, match="is not host:port") as refused:
                broker_at(f"{host}{number}:6650")
            assert len(str(refused.value)) < 1000
        del refused
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < len(host)


def test_a_configured_broker_is_allowed(loop: ManualLoop) -> None:
    allowed = Targets([Endpoint("pulsar", "broker", 6650)])
    assert resolve(loop, allowed, "broker:6650") == [("192.0.2.1", 6650)]


def test_new_brokers_replace_configured_ones_but_not_named_ones() -> None:
    old, new, named = broker_at("10.0.0.1:6650"), broker_at("10.0.0.2:6650"), broker_at("10.0.0.3:6650")
    targets = Targets([old], (broker_at("b*.example:6650"),))
    targets.learn(named)
    assert targets.is_reachable(old)
    targets.configure([new])
    allowed = [targets.allows(each) for each in (old, new, named, broker_at("b1.example:6650"))]
    assert allowed == [False, True, True, False]
    assert not targets.is_reachable(old)


def test_nothing_else_is(loop: ManualLoop) -> None:
    allowed = Targets([Endpoint("pulsar", "broker", 6650)])
    for wanted in ("broker:6651", "b1.example:6650", "192.0.2.1:6650"):
        with pytest.raises(TargetRefusedError):
            resolve(loop, allowed, wanted)


def test_what_a_broker_named_is_allowed(loop: ManualLoop) -> None:
    allowed = Targets([])
    allowed.learn(broker_at("pulsar://b1.example:6650"))
    assert resolve(loop, allowed, "b1.example:6650") == [("10.1.0.1", 6650)]


def test_the_oldest_learned_names_are_forgotten(loop: ManualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_MOST_LEARNED", 2)
    allowed = Targets([])
    for name in ("broker:1", "b1.example:1", "broker:1", "b2.example:1"):
        allowed.learn(broker_at(name))
    assert resolve(loop, allowed, "broker:1") == [("192.0.2.1", 1)]
    with pytest.raises(TargetRefusedError):
        resolve(loop, allowed, "b1.example:1")


def test_what_can_be_reached_at_once_is_forgotten_with_what_allowed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_MOST_LEARNED", 2)
    allowed = Targets([Endpoint("pulsar", "192.0.2.9", 1)])
    for name in ("192.0.2.1:1", "192.0.2.2:1"):
        allowed.learn(broker_at(name))
    for name in ("192.0.2.1:1", "192.0.2.9:1"):
        assert [allowed.is_reachable(broker_at(name)) for _ in range(2)] == [True, True]
    allowed.learn(broker_at("192.0.2.3:1"))
    assert [allowed.is_reachable(broker_at(f"192.0.2.{host}:1")) for host in (1, 2, 3, 9)] == [False, True, True, True]


def test_what_can_be_reached_at_once_is_bounded_however_clients_spell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_MOST_LEARNED", 2)
    allowed = Targets([Endpoint("pulsar", "2001:db8::a", 1)])
    for name in ("[2001:db8::a]:1", "[2001:DB8::a]:1", "[2001:db8::A]:1", "[2001:Db8::A]:01"):
        assert allowed.is_reachable(broker_at(name))
        assert len(allowed._reachable) <= 2


def test_a_member_allows_a_broker_that_another_has_named(loop: ManualLoop) -> None:
    named: list[None] = []
    first, second = SiblingBrokers(lambda: named.append(None)), SiblingBrokers(lambda: None)
    learning, asked = Targets([], siblings=first), Targets([], siblings=second)
    waiting = loop.run(lambda: loop.create_task(asked.resolve(broker_at("b1.example:6650"))))
    loop.advance(SIBLINGS_S / 2)
    assert not waiting.done()
    for _ in range(2):
        learning.learn(broker_at("pulsar+ssl://B1.example.:6650"))
    assert len(named) == 1
    loop.run(lambda: second.hear(["no address", *first.take_named(9)]))
    assert [(each.host, each.port) for each in waiting.result()] == [("10.1.0.1", 6650)]
    assert first.take_named(9) == []


def test_a_broker_that_no_member_names_is_refused(loop: ManualLoop) -> None:
    siblings = SiblingBrokers(lambda: None)
    asked = Targets([], siblings=siblings)
    waiting = loop.run(lambda: loop.create_task(asked.resolve(broker_at("b1.example:6650"))))
    loop.run(lambda: siblings.hear(["b2.example:6650", "b1.example:6651"]))
    loop.advance(SIBLINGS_S + 0.01)
    with pytest.raises(TargetRefusedError, match="nor was it named"):
        waiting.result()


def test_a_broker_that_a_member_names_lies_in_the_networks(loop: ManualLoop) -> None:
    siblings = SiblingBrokers(lambda: None)
    siblings.hear(["192.0.2.1:6650", "10.2.0.1:6650"])
    asked = Targets([], (), (ipaddress.ip_network("10.2.0.0/16"),), siblings)
    assert resolve(loop, asked, "10.2.0.1:6650") == [("10.2.0.1", 6650)]
    with pytest.raises(TargetRefusedError, match="outside of allowed_broker_networks"):
        resolve(loop, asked, "192.0.2.1:6650")


def test_a_pattern_allows_hosts_on_its_port(loop: ManualLoop) -> None:
    allowed = Targets([], (broker_at("B*.Example:6650"),))
    assert resolve(loop, allowed, "b1.example:6650") == [("10.1.0.1", 6650)]
    for wanted in ("b1.example:22", "b1.example.evil:6650", "xb1.example:6650"):
        with pytest.raises(TargetRefusedError, match="neither configured nor was it named"):
            resolve(loop, allowed, wanted)


def test_behind_a_pattern_only_addresses_of_the_networks_are_used(loop: ManualLoop) -> None:
    allowed = Targets(
        [Endpoint("pulsar", "broker", 1)], (broker_at("*.example:6650"),), (ipaddress.ip_network("10.2.0.0/16"),)
    )
    assert resolve(loop, allowed, "b2.example:6650") == [("10.2.0.1", 6650)]
    with pytest.raises(TargetRefusedError, match="outside of allowed_broker_networks"):
        resolve(loop, allowed, "b1.example:6650")
    assert resolve(loop, allowed, "broker:1") == [("192.0.2.1", 1)], "a configured broker may be anywhere"


def test_a_name_that_leads_nowhere_is_refused(loop: ManualLoop) -> None:
    with pytest.raises(TargetRefusedError, match="nowhere cannot be resolved"):
        resolve(loop, Targets([Endpoint("pulsar", "nowhere", 1)]), "nowhere:1")


def test_the_first_address_that_answers_is_used_and_only_checked_ones_are_tried(loop: ManualLoop) -> None:
    tried: list[str] = []

    async def connect(host: str, _port: int) -> str:
        tried.append(host)
        if host != "10.2.0.1":
            raise ConnectionRefusedError(host)
        return f"connected to {host}"

    loop.names["b3.example"] = ["10.2.0.9", "8.8.8.8", "10.2.0.1", "10.2.0.3"]
    allowed = Targets([], (broker_at("*.example:6650"),), (ipaddress.ip_network("10.2.0.0/16"),))
    task = loop.run(lambda: loop.create_task(allowed.connect(broker_at("b3.example:6650"), connect, 9)))
    assert task.result() == "connected to 10.2.0.1"
    assert tried == ["10.2.0.9", "10.2.0.1"]


def test_what_resolving_has_taken_is_not_shared_out_again(loop: ManualLoop) -> None:
    tried: list[tuple[str, float]] = []

    async def connect(host: str, _port: int) -> str:
        tried.append((host, loop.time()))
        if host != "10.2.0.3":
            await loop.create_future()
        return host

    async def slowly(host: str, port: int, **more: object) -> object:
        await asyncio.sleep(6)
        return await getaddrinfo(host, port, **more)

    loop.names["b3.example"] = ["10.2.0.1", "10.2.0.2", "10.2.0.3"]
    getaddrinfo, loop.getaddrinfo = loop.getaddrinfo, slowly  # type: ignore[method-assign]
    task = loop.run(
        lambda: loop.create_task(
            Targets([Endpoint("pulsar", "b3.example", 1)]).connect(broker_at("b3.example:1"), connect, 9)
        )
    )
    loop.advance(8.5)
    assert task.result() == "10.2.0.3"
    assert tried == [("10.2.0.1", 6), ("10.2.0.2", 7), ("10.2.0.3", 8)]


def test_a_name_is_the_same_however_it_is_written(loop: ManualLoop) -> None:
    asked: list[str] = []

    async def find(host: str, port: int, **more: object) -> object:
        asked.append(host)
        return await getaddrinfo(host, port, **more)

    loop.names["b1.example"] = ["10.2.0.1"]
    getaddrinfo, loop.getaddrinfo = loop.getaddrinfo, find  # type: ignore[method-assign]
    targets = Targets([Endpoint("pulsar", "b1.example", 1)])
    loop.names["b1.example."] = ["10.2.0.1"]
    for name in ("b1.example:1", "B1.Example:1", "b1.example.:1"):
        assert resolve(loop, targets, name) == [("10.2.0.1", 1)]
    assert asked == ["b1.example", "b1.example", "b1.example."]


def test_where_no_address_answers_the_last_error_is_told(loop: ManualLoop) -> None:
    async def connect(host: str, _port: int) -> None:
        raise ConnectionRefusedError(host)

    task = loop.run(
        lambda: loop.create_task(
            Targets([Endpoint("pulsar", "b2.example", 1)]).connect(broker_at("b2.example:1"), connect, 9)
        )
    )
    assert str(task.exception()) == "10.2.0.1"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        *(("broker:6650", True), ("Broker:6650", True), ("b1.example:6650", True), ("c.example:6650", True)),
        *(("broker:6651", False), ("b1.example.org:6650", False)),
    ],
)
def test_who_may_be_wanted_is_known_before_anything_is_resolved(wanted: str, *, expected: bool) -> None:
    allowed = Targets([Endpoint("pulsar", "broker", 6650)], (broker_at("b*.example:6650"),))
    allowed.learn(broker_at("pulsar://c.example:6650"))
    assert allowed.allows(broker_at(wanted)) is expected


@pytest.mark.parametrize("address", ["10.1.0.1", "::1", "2001:db8::1"])
def test_an_address_is_not_resolved(loop: ManualLoop, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    async def resolved(*_asked: object, **_more: object) -> None:
        raise AssertionError("nothing is to be asked")

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    assert resolve(loop, Targets([Endpoint("pulsar", address, 6650)]), f"[{address}]:6650") == [(address, 6650)]


def test_an_address_with_a_zone_is_resolved(loop: ManualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def resolved(host: str, port: int, **_more: object) -> list[object]:
        asked.append(host)
        return [(0, 0, 0, "", ("fe80::1", port, 0, 2))]

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    assert resolve(loop, Targets([broker_at("[fe80::1%eth0]:6650")]), "[fe80::1%eth0]:6650") == [("fe80::1", 6650)]
    assert asked == ["fe80::1%eth0"]
