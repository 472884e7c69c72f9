"""No request makes one turn of the loop long: each route, however much the proxy has to show, and each way to send.

What a turn does is measured in calls of functions, by the interpreter's own hook: whoever forgets to do his work in
slices is found, whatever the work is. What C does in one call is bounded by its size: the JSON of a turn, and pieces.
"""

import asyncio
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from limiter.limiter import Stream, StreamName
from limiter.token_bucket import DIRECTIONS
from protocol.topic_name import parse_topic
from proxy import typed_json
from proxy.admin import json_text
from proxy.admin.handlers import Number, description_of
from proxy.block_rules import Key, Kind
from proxy.blocking.blocklist import Order
from proxy.observe.connection import Connection
from proxy.policies import large_json
from tests.proxy.admin_client import Admin
from tests.proxy.live_admin import UNHURRIED, LiveAdmin

MANY = 1_000
"""Namespaces, streams, blocks, limits: each some fifty times what a turn may do."""
MOST_CALLS = 20_000
"""Calls in one turn: some 2 ms, without the hook."""
MOST_ENCODED = 64 * 1024
"""Bytes of JSON that are made in one turn, or in one call of a thread: 0.1 to 6 ms, by the characters in names."""
MOST_WRITTEN = 128 * 1024
"""Bytes that are given to a transport at once."""
MOST_READ = 64 * 1024
"""Bytes of JSON that are read in one turn, those of policies twice: up to 2 ms, by the number of objects in them."""


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the calls of functions in each of its turns, while it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_counting = False
        self.longest = 0
        self.most_encoded = 0
        self._encoded = 0
        self.most_read = 0
        self._read = 0

    def read(self, size: int) -> None:
        """Count bytes of JSON that are read in a turn."""
        if threading.get_ident() == self._thread_id:  # type: ignore[attr-defined]  # asyncio's own
            self._read += size
            self.most_read = max(self.most_read, self._read)

    def encode(self, size: int) -> None:
        """Count bytes of JSON: of a turn together, of other threads each by itself."""
        if threading.get_ident() == self._thread_id:  # type: ignore[attr-defined]  # asyncio's own
            self._encoded = size = self._encoded + size
        self.most_encoded = max(self.most_encoded, size)

    def _run_once(self) -> None:
        if not self.is_counting:
            super()._run_once()  # type: ignore[misc]  # asyncio's own
            return
        calls = self._encoded = self._read = 0

        def count(_frame: object, event: str, _arg: object) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(count)
        try:
            super()._run_once()  # type: ignore[misc]  # asyncio's own
        finally:
            sys.setprofile(None)
        self.longest = max(self.longest, calls)


def fill(admin: Admin) -> None:
    """Give each answer that can grow something to grow with."""
    registry, now = admin.engine.registry, admin.engine.clock()
    for number in range(MANY):
        topic = f"persistent://acme/n{number}/t"
        name = StreamName("publish", "acme", f"n{number}", topic, number)
        registry.open(Stream(name, (), lambda _stream, _entry: None, Connection(number)), parse_topic(topic), now)
        for direction in DIRECTIONS:
            name = StreamName(direction, "acme", f"n{number}", topic, number)
            admin.totals.of(name).passed_messages += 1
        admin.engine.blocklist.put(Key(Kind.ROLE, f"r{number}", ""), Order("spam", now), quietly=True)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAdmin]:
    folder: Path = tmp_path_factory.mktemp("store")
    limits = {"topics": {f"persistent://acme/n{number}/t": {"publish": {"messages": 5}} for number in range(MANY)}}
    made = LiveAdmin(folder / "policies.db", CountingLoop(), limits=limits, admin_access=UNHURRIED)
    made.run(_filled(made.admin))
    yield made
    made.close()


async def _filled(admin: Admin) -> None:
    fill(admin)


def _loop(live: LiveAdmin) -> CountingLoop:
    assert isinstance(live._loop, CountingLoop)
    return live._loop


@pytest.fixture
def counting(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of what is written; the loop counts meanwhile."""
    written: list[int] = []
    write = asyncio.selector_events._SelectorSocketTransport.write  # type: ignore[attr-defined]

    def watched(transport: Any, data: bytes) -> None:
        written.append(len(data))
        write(transport, data)

    def escaped(text: bytes) -> bytes:
        loop.encode(len(text))
        return own(text)

    def counted(reader: Callable[..., Any]) -> Callable[..., Any]:
        def read(text: bytes, *kind: Any) -> Any:
            loop.read(len(text))
            return reader(text, *kind)

        return read

    loop, own = _loop(live), json_text.escaped
    monkeypatch.setattr(large_json, "read", counted(large_json.read))
    monkeypatch.setattr(typed_json, "decode", counted(typed_json.decode))
    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write", watched)
    monkeypatch.setattr(json_text, "escaped", escaped)
    loop.longest, loop.most_encoded, loop.most_read, loop.is_counting = 0, 0, 0, True
    yield written
    loop.is_counting = False


_IN_PATH = {
    "domain": "persistent",
    "tenant": "acme",
    "namespace": "n1",
    "topic": "t",
    "subscription": "s",
    "group": "g",
    "name": "brokerPublisherThrottlingMaxMessageRate",
    "value": "5",
}
_IN_QUERY = {
    "topic": "persistent://acme/n1/t",
    "direction": "publish",
    "setting": "topic",
    "kind": "role",
    "name": "r1",
    "level": "topic",
}
_FILTERED = [
    ("GET", "/sluice/streams?search=nowhere&limit=10000"),
    ("GET", "/sluice/streams?direction=publish&level=topic&name=persistent://acme/n1/t&limit=10000"),
    ("GET", "/sluice/streams?direction=publish&setting=tenant&name=a*&limit=0"),
    ("GET", "/sluice/limiters?search=persistent&limit=1000"),
    ("GET", "/metrics?limits=all"),
]


def _routes() -> list[tuple[str, str]]:
    """Each route of the application, found there."""

    async def find() -> list[tuple[str, str]]:
        admin = Admin()
        routes = [_asked(route) for route in admin.app.router.routes() if route.resource is not None]
        await admin.client.close()
        admin.store.close()
        return sorted(set(routes))

    return asyncio.run(find())


def _asked(route: web.AbstractRoute) -> tuple[str, str]:
    assert route.resource is not None
    path = re.sub(r"\{(\w+)[^}]*\}", lambda match: _IN_PATH[match[1]], route.resource.canonical)
    description = description_of(route.handler)
    keys = () if description is None else description.query
    query = {key.name: _IN_QUERY[key.name] for key in keys if key.is_needed} | {
        key.name: str(key.most) for key in keys if isinstance(key, Number)
    }
    return route.method, path + "?" * bool(query) + "&".join(f"{name}={value}" for name, value in query.items())


ROUTES = _routes()
_READING = {"GET", "HEAD"}


@pytest.mark.parametrize(("method", "path"), [*ROUTES, *_FILTERED])
def test_no_route_makes_a_turn_long(live: LiveAdmin, counting: list[int], method: str, path: str) -> None:
    answer = live.ask(method, path, None, **{"Content-Type": "application/json"})
    assert answer.status < 500 or path == "/readyz"
    assert _loop(live).longest <= MOST_CALLS
    assert _loop(live).most_encoded <= MOST_ENCODED or path == "/sluice/openapi.json"  # once in a process, in a thread
    assert max(counting) <= MOST_WRITTEN


def test_all_routes_are_asked() -> None:
    assert {path.partition("?")[0] for _, path in ROUTES} >= {
        "/metrics",
        "/console",
        "/sluice/streams",
        "/sluice/limiters",
        "/sluice/limiters/history",
        "/sluice/limiters/value",
        "/sluice/limits",
        "/sluice/policies",
        "/sluice/blocks",
        "/sluice/fleet",
        "/sluice/openapi.json",
    }


_CHUNKS = (
    b"POST /sluice/blocks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"1\r\nx\r\n" * 40_000
    + b"0\r\n\r\n"
)
_PIPELINED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3_000


def send_and_read(live: LiveAdmin, clients: int, requests: bytes, answers: int) -> None:
    """Send from so many clients at once; each reads so many answers."""
    host, _, port = live.address.rpartition(":")
    sockets = [socket.create_connection((host, int(port)), 60) for _ in range(clients)]
    for each in sockets:
        each.sendall(requests)
    for each in sockets:
        come = bytearray()
        while come.count(b"HTTP/1.1 ") < answers and (piece := each.recv(65536)):
            come += piece
        each.close()


@pytest.mark.parametrize(
    ("clients", "requests", "answers"),
    [
        (4, _CHUNKS, 1),
        (2, _PIPELINED, 3_000),
        (60, b"GET /sluice/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
        (30, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
    ],
    ids=["chunks of a byte", "pipelined", "many clients", "many scrapers"],
)
def test_no_way_to_ask_makes_a_turn_long(
    live: LiveAdmin, counting: list[int], clients: int, requests: bytes, answers: int
) -> None:
    send_and_read(live, clients, requests, answers)
    assert _loop(live).longest <= MOST_CALLS
    assert max(counting) <= MOST_WRITTEN


def test_concurrent_scrapers_share_one_text(live: LiveAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[None] = []
    page = live.admin.metrics
    write = page._write

    async def watched() -> bytes:
        made.append(None)
        return await write()

    monkeypatch.setattr(page._shared, "_work", watched)
    send_and_read(live, 20, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 1)
    assert len(made) <= 2


_AT_ONCE = 30
_LARGEST = 64 * 1024
"""Bytes of the largest body of one policy, and of `admin_access.max_body`."""
_LARGEST_ON_LOOP = 2 * 1024
_KEYS = (
    '"publishThrottlingRateInMsg":5,"dispatchThrottlingRateInMsg":5,"subscribeThrottlingRatePerConsumer":5,'
    '"publishRateInMsgs":5,"messages":5,"limits":{}'
)
"""What each of Pulsar's bodies, a limit and a set of limits need; unknown keys beside them are full of objects."""


def body_of(size: int) -> bytes:
    """A body of so many bytes that is as much work as it can be."""
    text, number = f"{{{_KEYS}", 0
    while (left := size - len(text) - len(f',"k{number}":[{{}}]}}')) > 0:
        text += f',"k{number}":[{{}}' + ",{}" * min(left // 3, 5_000) + "]"
        number += 1
    return (text + " " * (size - len(text) - 1) + "}").encode()


def send_bodies(live: LiveAdmin, method: str, path: str, body: bytes) -> set[int]:
    """Send a body from many clients, of which the last bytes come at once; return the statuses of the answers."""
    host, _, port = live.address.rpartition(":")
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    sockets = [socket.create_connection((host, int(port)), 60) for _ in range(_AT_ONCE)]
    for each in sockets:
        each.sendall(request[:-1])
    for each in sockets:
        each.sendall(request[-1:])
    statuses = set()
    for each in sockets:
        with each, suppress(ConnectionResetError):  # an answer before the body has come
            come = each.recv(65536)
            while each.recv(65536):
                pass
            statuses.add(int(come.split(b" ", 2)[1]))
    return statuses


@pytest.mark.parametrize("size", [_LARGEST_ON_LOOP, _LARGEST])
@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path in ROUTES if method not in _READING])
def test_no_body_makes_a_turn_long(live: LiveAdmin, counting: list[int], method: str, path: str, size: int) -> None:
    statuses = send_bodies(live, method, path, body_of(size))
    assert max(statuses) < 500
    assert _loop(live).most_read <= MOST_READ
    assert _loop(live).longest <= MOST_CALLS


FORMS = 16
"""Forms of the patterns of one setting: as many as there may be."""


def test_limits_under_many_patterns_make_no_turn_long(tmp_path: Path) -> None:
    patterns = [f"acme/{'n' * length}*" for length in range(1, FORMS + 1)]
    limits = {"namespaces": {pattern: {"publish": {"messages": 5}} for pattern in patterns}}
    made = LiveAdmin(tmp_path / "policies.db", CountingLoop(), limits=limits, admin_access=UNHURRIED)
    loop = _loop(made)

    async def open_streams() -> None:
        registry, now = made.admin.engine.registry, made.admin.engine.clock()
        for number in range(200):
            topic = f"persistent://acme/{'n' * FORMS}{number}/t"
            name = StreamName("publish", "acme", f"{'n' * FORMS}{number}", topic, number)
            registry.open(Stream(name, (), lambda _stream, _entry: None, Connection(number)), parse_topic(topic), now)

    for pattern in patterns:
        path = f"/sluice/limits?direction=publish&setting=topic_of_namespace&name={pattern}"
        answer = made.ask("PUT", path, b'{"messages": "7/s"}', **{"Content-Type": "application/json"})
        assert answer.status == 200
    made.run(open_streams())
    loop.is_counting = True
    answer = made.ask("GET", "/sluice/limiters?limit=1000")
    loop.is_counting = False
    made.close()
    assert answer.body.count(patterns[-1].encode()) == 200
    assert loop.longest <= MOST_CALLS
