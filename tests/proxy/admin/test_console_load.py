"""What the console asks for each two seconds, of a proxy with 20,000 streams: bounded rows, bytes and turns."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from limiter.limiter import Entry, Stream, StreamName
from protocol.topic_name import parse_topic
from proxy.admin.routes.console import _FOLDER
from proxy.observe.connection import Connection
from proxy.observe.limit_history import SAMPLES
from tests.proxy.admin.test_longest_turn import MOST_CALLS, MOST_WRITTEN, CountingLoop
from tests.proxy.admin_client import Admin
from tests.proxy.live_admin import UNHURRIED, LiveAdmin

STREAMS, TOPICS = 20_000, 2_000
MOST_ROW = 2_000
"""Bytes of a stream or a limit in an answer."""


def fill(admin: Admin) -> None:
    """Open the streams, ten on each topic; a tenth of them holds an entry."""
    registry, scheduler, now = admin.engine.registry, admin.engine.scheduler, admin.engine.clock()
    for number in range(STREAMS):
        topic = parse_topic(f"persistent://acme/n{number % 100}/t{number % TOPICS}")
        name = StreamName("publish", topic.tenant, topic.namespace, topic.full, number, f"producer-{number}")
        connection = Connection(number, "192.0.2.1:40001", client_role="billing")
        stream = Stream(name, (), lambda _stream, _entry: None, connection)
        registry.open(stream, topic, now)
        if number % 10 == 0:
            scheduler.hold(stream, Entry(b"x" * 100, 1, 100, 200, now), now)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAdmin]:
    folder: Path = tmp_path_factory.mktemp("store")
    limits = {"each_topic": {"publish": {"messages": "1/h", "burst_messages": 1}}}
    made = LiveAdmin(folder / "policies.db", CountingLoop(), limits=limits, admin_access=UNHURRIED)

    async def filled() -> None:
        fill(made.admin)
        limiters = made.admin.engine.registry.limiters
        (busy,) = [limiter for scope, limiter in limiters.items() if scope.name == BUSY]
        for _ in range(SAMPLES + 1):
            busy.usage.messages += 1
            for _ in made.admin.history.sampling():
                pass

    made.run(filled())
    yield made
    made.close()


def bound(name: str) -> int:
    """A bound of the page's script."""
    script = (_FOLDER / "console.js").read_text()
    match = re.search(rf"const {name} = (\d+);", script)
    assert match is not None
    return int(match[1])


BUSY = "persistent://acme/n0/t0"
ONE = f"direction=publish&level=topic&name={BUSY}"


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        (f"/sluice/streams?limit={bound('MOST_STREAMS')}", bound("MOST_STREAMS")),
        (f"/sluice/streams?search=producer-1&limit={bound('MOST_STREAMS')}", bound("MOST_STREAMS")),
        (f"/sluice/limiters?limit={bound('MOST_LIMITS')}", bound("MOST_LIMITS")),
        (f"/sluice/limiters?{ONE}&limit={bound('MOST_LIMITS')}", 1),
        (f"/sluice/limiters/history?{ONE}", SAMPLES),
        (f"/sluice/limiters/value?{ONE}", 1),
        (f"/sluice/streams?{ONE}&limit=50", STREAMS // TOPICS),
    ],
)
def test_look_at_20_000_streams_takes_bounded_turns_and_bytes(
    live: LiveAdmin, monkeypatch: pytest.MonkeyPatch, path: str, rows: int
) -> None:
    written = list[int]()
    write = asyncio.selector_events._SelectorSocketTransport.write  # type: ignore[attr-defined]

    def watched(transport: object, data: bytes) -> None:
        written.append(len(data))
        write(transport, data)

    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write", watched)
    loop = live._loop
    assert isinstance(loop, CountingLoop)
    loop.longest, loop.is_counting = 0, True
    answer = live.ask("GET", path)
    loop.is_counting = False
    assert answer.status == 200
    shown = json.loads(answer.body)
    assert len(shown.get("streams", shown.get("limiters", shown.get("samples", shown.get("values"))))) == rows
    assert len(answer.body) <= 1000 + rows * MOST_ROW
    assert loop.longest <= MOST_CALLS
    assert max(written) <= MOST_WRITTEN


def test_history_of_2_000_limits_is_sampled_in_bounded_units(live: LiveAdmin) -> None:
    async def sampled() -> tuple[int, int]:
        history = live.admin.history
        units = sum(1 for _ in history.sampling())
        return units, len(history)

    units, kept = live.run(sampled())
    assert kept == TOPICS // 10, "those of topics that hold something: the others are not in use"
    assert units >= TOPICS // 10
