"""Places of callers: nobody takes those of others, and large answers are few at once."""

import asyncio
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from proxy.admin.auth import Caller
from proxy.admin.handlers import description_of
from proxy.admin.places import (
    MOST_IN_LINE_OF_ONE,
    MOST_LARGE,
    MOST_LARGE_OF_ONE,
    MOST_UNTAKEN,
    SLOW_S,
    LargeTurns,
    Untaken,
)
from proxy.admin.routes import streams as stream_rest
from tests.manual_clock import ManualClock
from tests.proxy.admin_client import Admin
from tests.proxy.manual_loop import ManualLoop
from tests.waiting import until

OPERATOR = Caller("ops", "192.0.2.1", "write")


def of_tenant(name: str) -> Caller:
    return Caller(name, "192.0.2.9", "read", frozenset({name}))


class Line:
    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock())
        self.turns = LargeTurns()

    def ask(self, caller: Caller) -> "asyncio.Task[bool]":
        task: asyncio.Task[bool] = self.loop.run(lambda: self.loop.create_task(self.turns.wait(caller)))
        return task

    def end(self, caller: Caller) -> None:
        self.loop.run(self.turns.end, caller)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.loop.close()


def test_one_caller_has_no_more_turns_than_one_may(line: Line) -> None:
    asked = [line.ask(OPERATOR) for _ in range(MOST_LARGE_OF_ONE + 1)]
    assert [each.done() for each in asked] == [True] * MOST_LARGE_OF_ONE + [False]
    line.end(OPERATOR)
    assert asked[-1].result()


def test_operator_has_a_turn_while_tenants_have_all_of_theirs(line: Line) -> None:
    asked = [line.ask(of_tenant(f"t{number}")) for number in range(MOST_LARGE + 5)]
    assert sum(each.done() for each in asked) == MOST_LARGE - 1
    assert line.ask(OPERATOR).result()


def test_each_caller_has_a_bounded_line_of_its_own(line: Line) -> None:
    tenants = [of_tenant(f"t{number}") for number in range(20)]
    own = {each.name: [line.ask(each) for _ in range(MOST_IN_LINE_OF_ONE + 5)] for each in tenants}
    for each in tenants[MOST_LARGE:]:
        assert [turn.done() for turn in own[each.name]] == [False] * MOST_IN_LINE_OF_ONE + [True] * 5
        assert not any(turn.result() for turn in own[each.name][MOST_IN_LINE_OF_ONE:])


def test_caller_with_a_long_line_does_not_keep_others_waiting(line: Line) -> None:
    for name in ("a", "b"):
        for _ in range(MOST_LARGE_OF_ONE + MOST_IN_LINE_OF_ONE):
            line.ask(of_tenant(name))
    other = line.ask(of_tenant("c"))
    turns = 0
    while not other.done():
        line.end(of_tenant("ab"[turns % 2]))
        turns += 1
    assert turns <= 3, "one of each caller before it"


def test_turns_are_given_in_the_order_of_the_line(line: Line) -> None:
    running = [of_tenant(f"r{number}") for number in range(MOST_LARGE - 1)]
    for each in running:
        line.ask(each)
    waiting = [line.ask(of_tenant(f"w{number}")) for number in range(3)]
    for at, each in enumerate(running):
        line.end(each)
        assert [turn.done() for turn in waiting] == [number <= at for number in range(3)]


def test_caller_that_leaves_the_line_takes_no_turn(line: Line) -> None:
    callers = [of_tenant(f"r{number}") for number in range(MOST_LARGE - 1)]
    for each in callers:
        line.ask(each)
    gone, next_one = line.ask(of_tenant("gone")), line.ask(of_tenant("next"))
    line.loop.run(gone.cancel)
    line.end(callers[0])
    assert next_one.result()
    line.end(of_tenant("next"))
    for each in callers[1:]:
        line.end(each)
    assert not line.turns._lines


def test_turn_of_a_caller_that_has_just_left_is_the_next_one_s(line: Line) -> None:
    running = [line.ask(of_tenant("a")) for _ in range(MOST_LARGE_OF_ONE)]
    gone, next_one = line.ask(of_tenant("a")), line.ask(of_tenant("a"))

    def leave_and_end() -> None:
        gone.cancel()
        line.turns.end(of_tenant("a"))

    line.loop.run(leave_and_end)
    assert all(each.result() for each in running)
    assert next_one.result()


class Answers:
    """Answers that are being taken, of so many bytes; `lost` has the names of those that were lost."""

    def __init__(self, most: int) -> None:
        self.now_s = 0.0
        self.untaken = Untaken(most, lambda: self.now_s)
        self.lost: list[str] = []
        self.callbacks: dict[str, Any] = {}

    def add(self, name: str, size: int) -> None:
        self.callbacks[name] = partial(self.lost.append, name)
        self.untaken.add(self.callbacks[name], name[0], size)

    def taken(self, *names: str) -> None:
        for name in names:
            self.untaken.taken(self.callbacks[name])


def test_caller_with_most_untaken_bytes_loses_its_oldest_answer() -> None:
    answers = Answers(100)
    for name in ("a1", "b1", "a2", "a3"):
        answers.add(name, 25)
    assert answers.lost == []
    answers.now_s = SLOW_S
    answers.add("c1", 20)
    assert answers.lost == ["a1"]
    answers.add("d1", 30)
    assert answers.lost == ["a1", "a2"]
    answers.taken("b1", "a3", "c1", "d1", "a1")
    assert answers.untaken.size == 0
    answers.add("e1", 300)
    assert answers.lost == ["a1", "a2"], "one answer may be larger than all"


def test_answers_taken_at_once_are_lost_beyond_twice_the_bytes() -> None:
    answers = Answers(100)
    for name in ("a1", "a2", "b1", "b2"):
        answers.add(name, 50)
    assert answers.lost == []
    answers.add("c1", 10)
    assert answers.lost == ["a1"]


TOKENS = """
ops: {access: write, token: operator-01234567}
acme: {access: read, token: of-acme-012345678, tenants: [acme]}
shop: {access: read, token: of-shop-012345678, tenants: [shop]}
"""


def bearer(token: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {token}"}}


async def test_callers_keep_places_while_one_waits_for_ever(
    make_admin, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def hang(*_: object) -> None:
        await never.wait()

    monkeypatch.setattr(stream_rest.StreamRest, "_page", hang)
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    admin: Admin = await make_admin(admin_access={"tokens": tmp_path / "tokens.yaml", "max_connections": 40})
    path = "/sluice/streams?tenant=acme"
    asked = [asyncio.ensure_future(admin.ask("GET", path, **bearer("of-acme-012345678"))) for _ in range(30)]
    while len(done := [each for each in asked if each.done()]) < 20:
        await asyncio.wait(set(asked) - set(done), return_when=asyncio.FIRST_COMPLETED)
    refused = [each.result() for each in done]
    assert {status for status, _ in refused} == {503}
    assert "10 requests of acme are under way" in refused[-1][1]["reason"]
    shop = "/admin/v2/namespaces/shop/orders/publishRate"
    assert (await admin.ask("GET", shop, **bearer("of-shop-012345678")))[0] == 200
    assert (await admin.ask("GET", "/sluice/status", **bearer("operator-01234567")))[0] == 200
    assert (await admin.ask("GET", "/healthz"))[0] == 200
    assert (await admin.ask("GET", "/readyz"))[0] == 503
    assert admin.engine.counters.admin_refused["busy"] == 20
    waiting = [each for each in asked if not each.done()]
    assert len(waiting) == 10
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    never.set()


@pytest.fixture
async def read_by(make_admin, tmp_path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An admin address, and clients of it that send a request for 8 MiB, and read its first bytes alone."""
    piece = [b'"', *[b"x" * (64 << 10)] * 128, b'"']

    async def page(*_: object) -> list[bytes]:
        return piece

    monkeypatch.setattr(stream_rest.StreamRest, "_page", page)
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    admin: Admin = await make_admin(admin_access={"tokens": tmp_path / "tokens.yaml"})
    opened: list[socket.socket] = []

    async def read(token: str) -> socket.socket:
        opened.append(socket.socket())
        opened[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        opened[-1].setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(opened[-1], (admin.client.host, admin.client.port))
        request = f"GET /sluice/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        await loop.sock_sendall(opened[-1], request.encode())
        assert await loop.sock_recv(opened[-1], 12) == b"HTTP/1.1 200"
        return opened[-1]

    yield admin, read
    for each in opened:
        each.close()


async def test_slow_readers_keep_no_other_caller_waiting(read_by: Any) -> None:
    admin, read = read_by
    tokens = ("of-acme-012345678", "of-shop-012345678")
    for _ in range(2 * MOST_LARGE):
        for token in tokens:
            await read(token)
    for token in (*tokens, "operator-01234567"):
        status, answer = await admin.ask("GET", "/sluice/streams", **bearer(token))
        assert (status, len(answer)) == (200, 8 << 20)
    four = [admin.ask("GET", "/sluice/streams", **bearer("operator-01234567")) for _ in range(4)]
    assert [status for status, _ in await asyncio.gather(*four)] == [200] * 4
    assert admin.engine.counters.admin_refused["busy"] >= 2 * 2 * MOST_LARGE - 2 * MOST_UNTAKEN // (8 << 20)
    assert max(each.size for each in admin.places._untaken.values()) <= 2 * MOST_UNTAKEN


_TAKEN_SLOWLY = sorted(
    {
        *("/sluice/streams", "/sluice/limits", "/sluice/limiters", "/sluice/policies", "/sluice/backup"),
        *("/sluice/audit", "/sluice/blocks", "/metrics"),
    }
)


async def test_all_routes_with_large_answers_are_asked(make_admin) -> None:
    admin: Admin = await make_admin()
    routes = [(each.resource, description_of(each.handler)) for each in admin.app.router.routes()]
    assert {each.canonical for each, described in routes if each and described and described.is_large} == {
        *_TAKEN_SLOWLY,
        "/sluice/fleet",  # sends as they do; without a fleet it is 404
    } - {"/metrics"}


class SlowReaders:
    """Clients that take nothing of an answer until `taken` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = asyncio.Event()
        self.count = 0
        prepare = web.StreamResponse.prepare

        async def stopped(response: web.StreamResponse, request: web.BaseRequest) -> Any:
            self.count += 1
            await self.taken.wait()
            return await prepare(response, request)

        monkeypatch.setattr(web.StreamResponse, "prepare", stopped)


@pytest.mark.parametrize("path", _TAKEN_SLOWLY)
async def test_slow_reader_of_any_route_keeps_no_turn(
    make_admin, tmp_path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    readers = SlowReaders(monkeypatch)
    monkeypatch.setattr("proxy.admin.handlers._PIECE", 8)
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    admin: Admin = await make_admin(admin_access={"tokens": tmp_path / "tokens.yaml"})
    many = 2 * MOST_LARGE
    asked = [asyncio.ensure_future(admin.client.get(path, **bearer("operator-01234567"))) for _ in range(many)]
    await until(lambda: readers.count == many)
    assert admin.places._turns._running.total() == 0
    assert admin.places._shares._taken.total() == 0
    assert sum(len(each._answers) for each in admin.places._untaken.values()) == many
    readers.taken.set()
    for answer in await asyncio.gather(*asked):
        assert (answer.status, bool(await answer.read())) == (200, True)
    await until(lambda: not any(each.size for each in admin.places._untaken.values()))


async def test_backups_taken_slowly_are_lost_beyond_their_bytes(make_admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.admin.places.MOST_UNTAKEN_FILES", 1)
    monkeypatch.setattr("proxy.admin.places.SLOW_S", 0.0)
    readers = SlowReaders(monkeypatch)
    admin: Admin = await make_admin()
    first = asyncio.ensure_future(admin.client.get("/sluice/backup"))
    await until(lambda: readers.count == 1)
    second = asyncio.ensure_future(admin.client.get("/sluice/backup"))
    with pytest.raises(aiohttp.ClientError):
        await first
    readers.taken.set()
    answer = await second
    assert (answer.status, (await answer.read())[:6]) == (200, b"SQLite")
    assert admin.engine.counters.admin_refused["busy"] == 1


async def test_tenants_leave_places_for_further_tenants(make_admin, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    never = asyncio.Event()

    async def hang(*_: object) -> None:
        await never.wait()

    monkeypatch.setattr(stream_rest.StreamRest, "_page", hang)
    names = [f"t{number}" for number in range(6)]
    tokens = [f"{name}: {{access: read, token: of-{name}-0123456789, tenants: [{name}]}}\n" for name in names]
    (tmp_path / "tokens.yaml").write_text("".join(tokens))
    admin: Admin = await make_admin(admin_access={"tokens": tmp_path / "tokens.yaml", "max_connections": 80})
    asked = []
    for name in names[:5]:
        asked += [
            asyncio.ensure_future(admin.ask("GET", "/sluice/streams", **bearer(f"of-{name}-0123456789")))
            for _ in range(20)
        ]
        await until(lambda key=f"{name}@": admin.places._shares._taken[key])  # type: ignore[misc]
    path = "/admin/v2/namespaces/t5/orders/publishRate"
    assert (await admin.ask("GET", path, **bearer("of-t5-0123456789")))[0] == 200
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    never.set()
