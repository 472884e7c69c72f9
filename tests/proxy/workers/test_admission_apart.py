"""Bounds of `admission` over two real worker processes: they refuse exactly those whom one process would."""

import asyncio
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from accesslog.record import ConnectionLine, RejectLine
from tests.proxy.blocks import metadata
from tests.proxy.tcp import TcpPeer
from tests.proxy.wire import OTHER_TOPIC, TOPIC, body, close_producer, connect, connected, name_of, producer, subscribe
from tests.proxy.workers.apart import Apart, apart, written

CLIENTS = 12


async def connected_ones(one: Apart, count: int) -> list[TcpPeer]:
    clients = [await one.client() for _ in range(count)]
    for client in clients:
        client.send(connect())
    for client in clients:
        assert await client.hear() == connected()
    return clients


async def sent(clients: Iterable[TcpPeer], *frames: bytes) -> list[str]:
    """What each hears, by name, when all of them say the same at once."""
    clients = list(clients)
    for client in clients:
        client.send(*frames)
    return [name_of(await client.hear() or b"") for client in clients for _ in frames]


async def let_in(client: TcpPeer, frame: bytes, wanted: str) -> None:
    """Say it again until there is room."""
    async with asyncio.timeout(20):
        while await sent([client], frame) != [wanted]:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)


async def let_in_as_many(clients: list[TcpPeer], count: int) -> list[TcpPeer]:
    """Who is refused comes again, as of one address no more are let in at once than are free; gives who is inside."""
    inside: list[TcpPeer] = []
    async with asyncio.timeout(20):
        while len(inside) < count:
            outside = [client for client in clients if client not in inside]
            heard = await sent(outside, producer())
            inside += [client for client, what in zip(outside, heard, strict=True) if what == "PRODUCER_SUCCESS"]
    assert len(inside) == count
    assert set(await sent([client for client in clients if client not in inside], producer())) <= {"ERROR"}
    return inside


async def greeted(one: Apart, count: int) -> list[str]:
    """What so many new clients hear; who is refused before he says anything may find nothing but a reset."""
    heard = []
    for client in [await one.client() for _ in range(count)]:
        try:
            heard += await sent([client], connect())
        except ConnectionError:
            heard.append("ERROR")
    return heard


async def test_producers_of_one_topic_are_as_many_as_configured_over_all_workers(tmp_path: Path) -> None:
    async with apart({}, tmp_path / "log", admission={"max_producers_per_topic": 3}) as one:
        clients = await connected_ones(one, CLIENTS)
        inside = await let_in_as_many(clients, 3)
        outside = [client for client in clients if client not in inside]
        inside[0].writer.close()
        await let_in(outside[0], producer(), "PRODUCER_SUCCESS")
        assert await sent(outside[1:], producer()) == ["ERROR"] * len(outside[1:])
        refused = 'sluice_admission_refused_total{what="max_producers_per_topic"}'
        shown = await one.until("/metrics", refused)
        (told,) = [float(line.split()[-1]) for line in shown.splitlines() if line.startswith(refused)]
    rejects = [line for line in written(tmp_path / "log") if isinstance(line, RejectLine)]
    assert sum(line.rejected for line in rejects) == told >= CLIENTS - 3 + len(outside[1:])
    assert {line.topic for line in rejects} == {TOPIC}
    passing = ", and of one address no more that the broker has not accepted yet than are free"
    assert {line.detail.replace(passing, "") for line in rejects} == {
        "producers of one topic: at most 3 (admission.max_producers_per_topic)"
    }


async def test_a_refusal_says_what_it_says_in_one_process_and_what_was_sent_behind_it_is_done() -> None:
    async with apart({}, admission={"max_producers_per_topic": 1}) as one:
        first, second = await connected_ones(one, 2)
        assert await sent([first], producer()) == ["PRODUCER_SUCCESS"]
        second.send(producer(1), producer(1, OTHER_TOPIC, request_id=101), close_producer(1))
        heard = [await second.hear() or b"" for _ in range(3)]
        assert body(heard[0]).message == "producers of one topic: at most 1 (admission.max_producers_per_topic)"
        assert [name_of(frame) for frame in heard] == ["ERROR", "PRODUCER_SUCCESS", "CLOSE_PRODUCER"]


async def test_an_addresss_new_connections_are_counted_over_all_workers(tmp_path: Path) -> None:
    async with apart({}, tmp_path / "log", admission={"connection_rate_per_address": "5/1h"}) as one:
        assert sorted(await greeted(one, CLIENTS)) == ["CONNECTED"] * 5 + ["ERROR"] * (CLIENTS - 5)
        await one.until("/metrics", f'sluice_connections_ended_total{{cause="connection_rate"}} {CLIENTS - 5}.0')
    ended = [line for line in written(tmp_path / "log") if isinstance(line, ConnectionLine)]
    assert sum(line.end_cause == "connection_rate" for line in ended) == CLIENTS - 5


async def test_so_are_all_connections_at_once() -> None:
    async with apart({}, max_connections=3) as one:
        assert sorted(await greeted(one, CLIENTS)) == ["CONNECTED"] * 3 + ["ERROR"] * (CLIENTS - 3)
        for client in one.clients:
            client.writer.close()
        async with asyncio.timeout(20):
            while await greeted(one, 1) != ["CONNECTED"]:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)


async def test_lookups_of_one_address_are_counted_over_all_workers() -> None:
    async with apart({}, admission={"lookup_rate_per_address": "20/1h"}) as one:
        clients = await connected_ones(one, CLIENTS)
        heard = await sent(clients, *(metadata(number) for number in range(1, 5)))
        assert heard.count("PARTITIONED_METADATA") == 20, "as the broker of this test sends them back"
        assert heard.count("PARTITIONED_METADATA_RESPONSE") == 4 * CLIENTS - 20


async def test_a_subscribe_rate_that_is_set_at_run_time_holds_over_all_workers() -> None:
    async with apart({}) as one:
        rate = {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 3600}
        assert await one.post("/admin/v2/namespaces/acme/shop/subscribeRate", rate) < 300
        clients = await connected_ones(one, CLIENTS)
        heard = await sent(clients, subscribe(7, consumer_name="c"))
        assert sorted(heard) == ["ERROR"] * (CLIENTS - 2) + ["SUCCESS"] * 2
        assert await sent(clients[:1], subscribe(9, consumer_name="another")) == ["SUCCESS"]


async def test_a_subscribe_rate_that_was_kept_holds_from_the_start(tmp_path: Path) -> None:
    store = {"store": tmp_path / "policies.db"}
    rate = {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 3600}
    async with apart({}, policies=store) as one:
        assert await one.post("/admin/v2/namespaces/acme/shop/subscribeRate", rate) < 300
    async with apart({}, policies=store) as one:
        heard = await sent(await connected_ones(one, CLIENTS), subscribe(7, consumer_name="c"))
        assert sorted(heard) == ["ERROR"] * (CLIENTS - 1) + ["SUCCESS"]


async def test_the_places_of_a_worker_that_dies_are_free_again() -> None:
    async with apart({}, admission={"max_producers_per_topic": CLIENTS // 2}) as one:
        clients = await connected_ones(one, CLIENTS)
        inside = await let_in_as_many(clients, CLIENTS // 2)
        os.kill(one.processes()[0], signal.SIGKILL)
        await one.until("/metrics", "sluice_workers_lost_total 1.0")
        await one.until("/metrics", "sluice_workers 2.0")
        left = 0
        for client in inside:
            client.send(close_producer(5))
            try:
                left += await client.hear() is not None
            except ConnectionError:
                continue
        again = await connected_ones(one, CLIENTS)
        await let_in_as_many(again, CLIENTS // 2 - left)
