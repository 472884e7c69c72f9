"""Limits without streams whose values have changed: what is shown as in force is in force."""

from typing import Any

import pytest

from tests.proxy.admin.test_console import let_open
from tests.proxy.admin_client import Admin

TENANT = "/sluice/limits?direction=publish&setting=tenant&name=acme"
TOPIC = "persistent://acme/shop/a"


async def at_work(admin: Admin) -> list[str]:
    _, page = await admin.ask("GET", "/sluice/limiters")
    return [f"{each['level']} {each['name']}" for each in page["limiters"]]


async def rates(admin: Admin, query: str = "", metric: str = "sluice_limit_per_second") -> dict[str, float]:
    _, text = await admin.ask("GET", f"/metrics{query}")
    lines = [line for line in text.splitlines() if line.startswith(f"{metric}{{")]
    return {line.partition('name="')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.parametrize("query", ["", "?limits=all"])
async def test_limit_that_is_taken_back_is_shown_no_more(make_admin: Any, query: str) -> None:
    admin: Admin = await make_admin()
    await admin.ask("PUT", TENANT, json={"messages": 5})
    stream = let_open(admin, TOPIC)
    assert (await at_work(admin), await rates(admin, query)) == (["tenant acme"], {"acme": 5})
    admin.engine.registry.close(stream, admin.engine.clock())
    assert (await at_work(admin), await rates(admin, query)) == (["tenant acme"], {"acme": 5}), "it holds still"
    await admin.ask("DELETE", TENANT)
    assert (await at_work(admin), await rates(admin, query)) == ([], {})


async def test_value_of_a_limit_without_streams_is_the_new_one(make_admin: Any) -> None:
    admin: Admin = await make_admin(limits={"tenants": {"acme": {"publish": {"messages": 5}}}})
    stream = let_open(admin, TOPIC)
    admin.engine.registry.close(stream, admin.engine.clock())
    await admin.ask("PUT", TENANT, json={"messages": 7})
    assert await rates(admin) == {"acme": 7}
    let_open(admin, TOPIC, 2)
    assert (await at_work(admin), await rates(admin)) == (["tenant acme"], {"acme": 7})


async def test_change_of_another_name_keeps_a_limit_and_its_counts(make_admin: Any) -> None:
    """No counter falls: Prometheus would take the way back for messages that have passed."""
    tenants = {name: {"publish": {"messages": 5}} for name in ("acme", "zeta")}
    admin: Admin = await make_admin(limits={"tenants": tenants})
    stream = let_open(admin, "persistent://zeta/shop/a")
    admin.engine.scheduler.pass_entry(stream, 3, 30, admin.engine.clock())
    admin.engine.registry.close(stream, admin.engine.clock())
    before = await used(admin)
    await admin.ask("PUT", TENANT, json={"messages": 7})
    assert await at_work(admin) == ["tenant zeta"]
    assert await used(admin) == before == {"acme": 0, "zeta": 3}
    await admin.ask("PUT", TENANT.replace("acme", "zeta"), json={"messages": 9})
    assert (await rates(admin))["zeta"] == 9
    assert await used(admin) == before


async def used(admin: Admin) -> dict[str, float]:
    return await rates(admin, metric="sluice_limit_used_total")
