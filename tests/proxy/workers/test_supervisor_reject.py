"""Limits in mode `reject` over real worker processes: what clients hear, and what is told of it."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from accesslog.record import LimitLine
from protocol.commands import body_of, split
from protocol.pulsar_pb2 import CommandSendError, CommandSendReceipt, NotAllowedError
from tests.proxy.tcp import TcpPeer
from tests.proxy.wire import TOPIC, sends
from tests.proxy.workers.apart import Apart, apart, intervals, written

CLIENTS = 8
EACH = 700
"""More than a worker has on its way to be judged of a stream that waits."""


async def answers(client: TcpPeer, most: int) -> list[CommandSendError | CommandSendReceipt]:
    heard = []
    for _ in range(most):
        frame = await asyncio.wait_for(client.hear(), 10)
        assert frame is not None
        heard.append(body_of(split(frame)[0]))
    return heard


def refused_of(told: list[CommandSendError | CommandSendReceipt]) -> list[CommandSendError]:
    return [answer for answer in told if isinstance(answer, CommandSendError)]


def rejecting(messages: str | int) -> dict[str, object]:
    return {"topics": {TOPIC: {"publish": {"messages": messages, "mode": "reject"}}}}


async def held(one: Apart, messages: int) -> None:
    async with asyncio.timeout(20):
        while (await one.get("/sluice/streams"))["totals"]["held_messages"] != messages:  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(0.05)


async def test_all_workers_together_refuse_what_is_over_the_limit_and_each_client_hears_it_in_order(
    tmp_path: Path,
) -> None:
    arrived = Counter[str]()
    async with apart(rejecting("10/h"), tmp_path / "log", arrived, stores=True) as one:
        clients = await one.producers(CLIENTS)
        for client in clients:
            client.send(*sends(EACH))
        told = [await answers(client, EACH) for client in clients]
        for heard in told:
            assert [answer.sequence_id for answer in heard] == list(range(EACH))
        refused = [error for heard in told for error in refused_of(heard)]
        assert {error.error for error in refused} == {NotAllowedError}
        assert {error.message for error in refused} == {
            f"over the publish limit of topic {TOPIC}: 10 messages per 3600 s"
        }
        assert len(refused) == CLIENTS * EACH - 1
        shown = await one.get("/sluice/streams")
        assert sum(stream["rejected_messages"] for stream in shown["streams"]) == len(refused)
        assert sum(stream["passed_messages"] for stream in shown["streams"]) == arrived["SEND"] == 1
        assert shown["totals"]["held_messages"] == 0
        await one.until(
            "/metrics", f'sluice_limiter_messages_rejected_total{{direction="publish",level="topic"}} {len(refused)}.0'
        )
    lines = intervals(tmp_path / "log")
    assert sum(line.rejected_messages for line in lines) == len(refused)
    assert sum(line.offered_messages for line in lines) == CLIENTS * EACH
    assert sum(line.held_messages + line.dropped_messages for line in lines) == 0
    assert {(line.reason, line.limit_mode) for line in lines if line.rejected_messages} == {("topic", "reject")}
    limits = [line for line in written(tmp_path / "log") if isinstance(line, LimitLine)]
    assert sum(line.rejected_messages for line in limits) == len(refused)


async def test_a_limit_that_begins_to_refuse_and_to_hold_again_does_so_in_all_workers() -> None:
    arrived = Counter[str]()
    place = f"/sluice/limits?direction=publish&setting=topic&name={TOPIC}"
    async with apart({}, None, arrived, stores=True) as one:
        assert await one.put(place, {"messages": "1/h"}) < 300
        first, second = clients = await one.producers(2)
        first.send(*sends(3))
        await held(one, 2)
        assert await one.put(place, {"messages": "1/h", "mode": "reject"}) < 300
        await asyncio.sleep(0.3)
        second.send(*sends(3))
        assert len(refused_of(await answers(second, 3))) == 3
        first.send(*sends(2, start=3))
        await held(one, 4)
        assert await one.put(place, {"messages": "1/h"}) < 300
        await asyncio.sleep(0.3)
        second.send(*sends(2, start=3))
        await held(one, 6)
        assert await one.put(place, {"messages": 1_000_000}) < 300
        told = [await answers(client, count) for client, count in zip(clients, (5, 2), strict=True)]
        assert [[answer.sequence_id for answer in heard] for heard in told] == [[0, 1, 2, 3, 4], [3, 4]]
        assert not any(map(refused_of, told))
        assert arrived["SEND"] == 7


async def test_a_client_that_leaves_at_once_has_all_of_it_judged_and_counted(tmp_path: Path) -> None:
    arrived = Counter[str]()
    async with apart(rejecting("10/h"), tmp_path / "log", arrived, stores=True) as one:
        (client,) = await one.producers(1)
        client.send(*sends(EACH))
        client.writer.write_eof()
        while await client.hear() is not None:
            pass
    (line,) = [line for line in intervals(tmp_path / "log") if line.offered_messages]
    assert (line.passed_messages, line.rejected_messages, line.dropped_messages) == (arrived["SEND"], EACH - 1, 0)


async def test_where_a_worker_died_the_limit_goes_on_to_refuse() -> None:
    arrived = Counter[str]()
    async with apart(rejecting("10/h"), None, arrived, stores=True) as one:
        for client in await one.producers(4):
            client.send(*sends(5))
        await one.until("/metrics", 'sluice_limiter_messages_rejected_total{direction="publish",level="topic"} 19.0')
        async with asyncio.timeout(20):
            while not arrived["SEND"]:  # noqa: ASYNC110 - elsewhere; it is judged, and would die with its worker
                await asyncio.sleep(0.05)
        os.kill(one.processes()[0], signal.SIGKILL)
        await one.until("/metrics", "sluice_workers_lost_total 1.0")
        await one.until("/metrics", "sluice_workers 2.0")
        for client in await one.producers(4):
            client.send(*sends(5))
            assert len(refused_of(await answers(client, 5))) == 5
        assert arrived["SEND"] == 1
