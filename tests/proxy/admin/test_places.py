"""Places of callers: nobody takes those of others, and large answers are few at once."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.admin.auth import Caller
from proxy.admin.places import MOST_IN_LINE, MOST_IN_LINE_OF_ONE, MOST_LARGE, MOST_LARGE_OF_ONE, LargeTurns
from proxy.admin.routes import streams as stream_rest
from tests.manual_clock import ManualClock
from tests.proxy.admin_client import Admin
from tests.proxy.manual_loop import ManualLoop

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


def test_line_is_bounded_for_one_and_for_all(line: Line) -> None:
    own = [line.ask(of_tenant("a")) for _ in range(MOST_LARGE_OF_ONE + MOST_IN_LINE_OF_ONE + 5)]
    assert [each.result() for each in own if each.done()] == [True] * MOST_LARGE_OF_ONE + [False] * 5
    others = [line.ask(of_tenant(f"t{number}")) for number in range(MOST_IN_LINE + 5)]
    assert sum(not each.done() for each in (*own, *others)) == MOST_IN_LINE


def test_turns_are_given_in_the_order_of_the_line(line: Line) -> None:
    running = [of_tenant(f"r{number}") for number in range(MOST_LARGE - 1)]
    for each in running:
        line.ask(each)
    waiting = [line.ask(of_tenant(f"w{number}")) for number in range(3)]
    for at, each in enumerate(running):
        line.end(each)
        assert [one.done() for one in waiting] == [number <= at for number in range(3)]


def test_caller_that_leaves_the_line_takes_no_turn(line: Line) -> None:
    callers = [of_tenant(f"r{number}") for number in range(MOST_LARGE - 1)]
    for each in callers:
        line.ask(each)
    gone, next_one = line.ask(of_tenant("gone")), line.ask(of_tenant("next"))
    line.loop.run(gone.cancel)
    line.end(callers[0])
    assert next_one.result()
    assert not line.turns._line


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

    monkeypatch.setattr(stream_rest.StreamRest, "_answer", hang)
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
