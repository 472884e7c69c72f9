"""Which brokers clients may be connected to."""

import asyncio
import ipaddress
import tracemalloc
from collections.abc import Iterator

import pytest

from proxy.brokers import targets
from proxy.brokers.targets import TargetRefusedError, Targets, split_address
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop


@pytest.fixture
def loop() -> Iterator[ManualLoop]:
    loop = ManualLoop(ManualClock())
    loop.names = {"broker": ["192.0.2.1"], "b1.example": ["10.1.0.1"], "b2.example": ["8.8.8.8", "10.2.0.1"]}
    yield loop
    loop.close()


def resolve(loop: ManualLoop, allowed: Targets, wanted: str) -> list[tuple[str, int]]:
    task: asyncio.Task[list[tuple[str, int]]] = loop.run(lambda: loop.create_task(allowed.resolve(wanted)))
    return task.result()


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("host:6650", ("host", 6650)),
        ("pulsar://host:6650", ("host", 6650)),
        ("pulsar://host:6650/", ("host", 6650)),
        ("192.0.2.1:1", ("192.0.2.1", 1)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[2001:db8::1]:65535", ("2001:db8::1", 65535)),
        ("my_host.example:6650", ("my_host.example", 6650)),
    ],
)
def test_an_address_is_taken_apart(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address",
    [
        *("", "host", "host:", ":6650", "host:port", "host:65536", "host:-1", "host:²", "host:6650/path", "::1:6650"),
        *("a:6650,b:6650", "ho st:6650", "user@host:6650", "[::1:6650", "http://"),
        *("10.0.0.1\0.example:6650", "[fe80::1%\0]:6650", "x" * 300 + ":6650"),
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        split_address(address)


def test_a_name_that_ends_early_for_who_resolves_it_matches_no_pattern(loop: ManualLoop) -> None:
    """To the resolver a NUL ends it: `10.0.0.1`, which nobody allowed."""
    allowed = Targets([], ("*.example:6650",))
    with pytest.raises(TargetRefusedError, match="is not host:port"):
        resolve(loop, allowed, "10.0.0.1\0.example:6650")
    assert not allowed.allows("10.0.0.1\0.example:6650")


def test_of_what_clients_name_nothing_long_is_remembered_or_repeated() -> None:
    host = "x" * 1_000_000
    with pytest.raises(ValueError, match="is not host:port") as refused:
        split_address(f"{host}:6650")
    assert len(str(refused.value)) < 1000
    tracemalloc.start()
    try:
        allowed = Targets([], ("*.example:6650",))
        for number in range(5):
            assert allowed.at_once(f"{host}{number}:6650") is None
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < len(host)


def test_a_configured_broker_is_allowed(loop: ManualLoop) -> None:
    allowed = Targets([("broker", 6650)])
    assert resolve(loop, allowed, "broker:6650") == [("192.0.2.1", 6650)]


def test_nothing_else_is(loop: ManualLoop) -> None:
    allowed = Targets([("broker", 6650)])
    for wanted in ("broker:6651", "b1.example:6650", "192.0.2.1:6650", "broker", "", "broker:6650:6650"):
        with pytest.raises(TargetRefusedError):
            resolve(loop, allowed, wanted)


def test_what_a_broker_named_is_allowed_and_rubbish_is_passed_over(loop: ManualLoop) -> None:
    allowed = Targets([])
    allowed.learn("pulsar://b1.example:6650")
    allowed.learn("rubbish")
    assert resolve(loop, allowed, "b1.example:6650") == [("10.1.0.1", 6650)]


def test_the_oldest_learned_names_are_forgotten(loop: ManualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_MOST_LEARNED", 2)
    allowed = Targets([])
    for name in ("broker:1", "b1.example:1", "broker:1", "b2.example:1"):
        allowed.learn(name)
    assert resolve(loop, allowed, "broker:1") == [("192.0.2.1", 1)]
    with pytest.raises(TargetRefusedError):
        resolve(loop, allowed, "b1.example:1")


def test_what_was_had_at_once_is_forgotten_with_what_allowed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_MOST_LEARNED", 2)
    allowed = Targets([("192.0.2.9", 1)])
    for name in ("192.0.2.1:1", "192.0.2.2:1"):
        allowed.learn(name)
    for name in ("192.0.2.1:1", "192.0.2.9:1"):
        assert allowed.at_once(name) == allowed.at_once(name) == (name.partition(":")[0], 1)
    allowed.learn("192.0.2.3:1")
    assert allowed.at_once("192.0.2.1:1") is None
    assert [allowed.at_once(f"192.0.2.{host}:1") for host in (2, 3, 9)] == [
        (f"192.0.2.{host}", 1) for host in (2, 3, 9)
    ]


def test_what_was_had_at_once_is_bounded_however_clients_spell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_MOST_LEARNED", 2)
    allowed = Targets([("192.0.2.1", 1)])
    for name in ("192.0.2.1:1", "192.0.2.1:01", "192.0.2.1:001", "192.0.2.1:0001"):
        assert allowed.at_once(name) == ("192.0.2.1", 1)
        assert len(allowed._at_once) <= 2


def test_a_pattern_allows_hosts_on_its_port(loop: ManualLoop) -> None:
    allowed = Targets([], ("B*.Example:6650",))
    assert resolve(loop, allowed, "b1.example:6650") == [("10.1.0.1", 6650)]
    for wanted in ("b1.example:22", "b1.example.evil:6650", "xb1.example:6650"):
        with pytest.raises(TargetRefusedError, match="neither configured nor was it named"):
            resolve(loop, allowed, wanted)


def test_behind_a_pattern_only_addresses_of_the_networks_are_used(loop: ManualLoop) -> None:
    allowed = Targets([("broker", 1)], ("*.example:6650",), (ipaddress.ip_network("10.2.0.0/16"),))
    assert resolve(loop, allowed, "b2.example:6650") == [("10.2.0.1", 6650)]
    with pytest.raises(TargetRefusedError, match="outside of allowed_broker_networks"):
        resolve(loop, allowed, "b1.example:6650")
    assert resolve(loop, allowed, "broker:1") == [("192.0.2.1", 1)], "a configured broker may be anywhere"


def test_a_name_that_leads_nowhere_is_refused(loop: ManualLoop) -> None:
    with pytest.raises(TargetRefusedError, match="nowhere cannot be resolved"):
        resolve(loop, Targets([("nowhere", 1)]), "nowhere:1")


def test_the_first_address_that_answers_is_used_and_only_checked_ones_are_tried(loop: ManualLoop) -> None:
    tried: list[str] = []

    async def connect(host: str, _port: int) -> str:
        tried.append(host)
        if host != "10.2.0.1":
            raise ConnectionRefusedError(host)
        return f"connected to {host}"

    loop.names["b3.example"] = ["10.2.0.9", "8.8.8.8", "10.2.0.1", "10.2.0.3"]
    allowed = Targets([], ("*.example:6650",), (ipaddress.ip_network("10.2.0.0/16"),))
    task = loop.run(lambda: loop.create_task(allowed.connect("b3.example:6650", connect, 9)))
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
        return await found(host, port, **more)

    loop.names["b3.example"] = ["10.2.0.1", "10.2.0.2", "10.2.0.3"]
    found, loop.getaddrinfo = loop.getaddrinfo, slowly  # type: ignore[method-assign]
    task = loop.run(lambda: loop.create_task(Targets([("b3.example", 1)]).connect("b3.example:1", connect, 9)))
    loop.advance(8.5)
    assert task.result() == "10.2.0.3"
    assert tried == [("10.2.0.1", 6), ("10.2.0.2", 7), ("10.2.0.3", 8)]


def test_a_name_is_the_same_however_it_is_written(loop: ManualLoop) -> None:
    asked: list[str] = []

    async def find(host: str, port: int, **more: object) -> object:
        asked.append(host)
        return await found(host, port, **more)

    loop.names["b1.example"] = ["10.2.0.1"]
    found, loop.getaddrinfo = loop.getaddrinfo, find  # type: ignore[method-assign]
    targets = Targets([("b1.example", 1)])
    for name in ("b1.example:1", "B1.Example:1"):
        assert resolve(loop, targets, name) == [("10.2.0.1", 1)]
    assert asked == ["b1.example", "b1.example"]


def test_where_no_address_answers_the_last_error_is_told(loop: ManualLoop) -> None:
    async def connect(host: str, _port: int) -> None:
        raise ConnectionRefusedError(host)

    task = loop.run(lambda: loop.create_task(Targets([("b2.example", 1)]).connect("b2.example:1", connect, 9)))
    assert str(task.exception()) == "10.2.0.1"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        *(("broker:6650", True), ("Broker:6650", True), ("b1.example:6650", True), ("c.example:6650", True)),
        *(("broker:6651", False), ("b1.example.org:6650", False), ("nonsense", False)),
    ],
)
def test_who_may_be_wanted_is_known_before_anything_is_resolved(wanted: str, *, expected: bool) -> None:
    allowed = Targets([("broker", 6650)], ("b*.example:6650",))
    allowed.learn("pulsar://c.example:6650")
    assert allowed.allows(wanted) is expected


@pytest.mark.parametrize("address", ["10.1.0.1", "::1", "2001:db8::1"])
def test_an_address_is_not_resolved(loop: ManualLoop, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    async def resolved(*_asked: object, **_more: object) -> None:
        raise AssertionError("nothing is to be asked")

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    assert resolve(loop, Targets([(address, 6650)]), f"[{address}]:6650") == [(address, 6650)]


def test_an_address_with_a_zone_is_resolved(loop: ManualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def resolved(host: str, port: int, **_more: object) -> list[object]:
        asked.append(host)
        return [(0, 0, 0, "", ("fe80::1", port, 0, 2))]

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    assert resolve(loop, Targets([("fe80::1%eth0", 6650)]), "[fe80::1%eth0]:6650") == [("fe80::1", 6650)]
    assert asked == ["fe80::1%eth0"]
