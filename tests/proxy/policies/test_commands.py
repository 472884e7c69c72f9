"""`sluice explain`, `export`, `apply`, `diff` and `audit` against the admin address of a proxy."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from limiter.levels import Setting
from protocol.exit_codes import ExitCode
from sluice.cli import app
from tests.proxy.admin_client import Admin

_LIMITS = {
    "namespaces": {"acme/shop": {"publish": {"messages": 9}}},
    "resource_groups": {"gold": {"publish": {"messages": 50}, "tenants": ["acme"]}},
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The operator's log of the proxy must not get into what the command says."""
    with capture_logs():
        yield


async def sluice(admin: Admin, *arguments: str | Path, columns: int = 200) -> Result:
    """Beside the loop that answers it."""
    command = [*map(str, arguments), "--admin", f"{admin.client.host}:{admin.client.port}"]
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, command, env={"COLUMNS": str(columns)}))


async def test_explain_marks_what_holds_and_says_what_hides_the_rest(make_admin) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    await admin.ask("POST", "/admin/v2/namespaces/acme/shop/publishRate", json={"publishThrottlingRateInMsg": 5})
    text = (await sluice(admin, "explain", "acme/shop/orders", "--producer", "p")).stdout
    assert "resource group: gold, as tenant acme is attached to it (file)" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert ["topic", "topic_of_namespace acme/shop", "messages 5", "rest", "▶ holds"] in rows
    hidden = "hidden by topic_of_namespace acme/shop (rest)"
    assert ["", "topic_of_namespace acme/shop", "messages 9", "file", hidden] in rows
    assert ["role", "", "asked only for a --role", "", ""] in rows
    assert ["producer", "", "consumers have none", "", ""] in rows


async def test_explain_has_levels_in_one_piece_at_80_columns(make_admin) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    await admin.ask("POST", "/admin/v2/namespaces/acme/shop/publishRate", json={"publishThrottlingRateInMsg": 5})
    text = (await sluice(admin, "explain", "acme/shop/orders", columns=80)).stdout
    assert text.split().count("partitioned_topic") == 2
    assert max(map(len, text.splitlines())) <= 80


async def test_explain_of_a_system_topic_says_that_it_is_exempt(make_admin) -> None:
    result = await sluice(await make_admin(), "explain", "acme/shop/__change_events")
    assert "a topic of Pulsar's own: exempt from every limit but that of limits.exempt\n" in result.stdout
    assert "resource group" not in result.stdout
    limited = await make_admin(limits={"exempt": {"dispatch": {"messages": 50}}})
    result = await sluice(limited, "explain", "acme/shop/__change_events-partition-3")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
    assert rows == [["exempt", "", "", "", ""], ["exempt", "exempt", "messages 50", "file", "▶ holds"]]


async def test_what_is_exported_is_fine_and_no_different_and_applied_elsewhere_holds(make_admin, tmp_path) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    other: Admin = await make_admin()
    file = tmp_path / "limits.yaml"
    assert (await sluice(admin, "export", "--output", file)).exit_code == 0
    assert (await sluice(admin, "export")).stdout == file.read_text()
    same = await sluice(admin, "diff", file)
    assert (same.exit_code, same.stdout) == (0, "")

    assert (await sluice(other, "diff", file)).exit_code == ExitCode.FINDINGS
    tried = await sluice(other, "apply", file, "--dry-run")
    assert "would change: limits.namespaces.acme/shop.publish: - -> messages 9\n" in tried.stdout
    assert list(other.store.policies()) == []
    assert "changed: resource group of tenant acme: - -> gold\n" in (await sluice(other, "apply", file)).stdout
    assert (await sluice(other, "diff", file)).exit_code == 0
    assert "nothing to change" in (await sluice(other, "apply", file)).stdout


async def test_apply_says_what_the_proxys_own_file_limits(make_admin, tmp_path) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    file = tmp_path / "none.yaml"
    file.write_text("limits: {}\n")
    text = (await sluice(admin, "apply", file)).stdout
    assert "limits.namespaces.acme/shop.publish: the proxy's own file limits it; a value that limits nothing" in text
    assert (await sluice(admin, "diff", file)).exit_code == 0


async def test_diff_shows_each_key_with_both_values_and_the_origin(make_admin, tmp_path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("limits: {namespaces: {acme/shop: {publish: {messages: 30/min}}}}\n")
    result = await sluice(await make_admin(limits={"namespaces": _LIMITS["namespaces"]}), "diff", file)
    assert result.stdout.splitlines() == [
        "limits.namespaces.acme/shop.publish",
        "  file:     messages 30/min",
        "  in force: messages 9 (file)",
    ]


async def test_diff_fails_where_it_cannot_compare(make_admin, tmp_path: Path) -> None:
    admin: Admin = await make_admin()
    assert (await sluice(admin, "diff", tmp_path / "none.yaml")).exit_code == ExitCode.FAILED
    file = tmp_path / "limits.yaml"
    file.write_text("limits: {}\n")
    lost = await asyncio.to_thread(CliRunner().invoke, app, ["diff", str(file), "--admin", "127.0.0.1:1"])
    assert (lost.exit_code, len(lost.stderr.splitlines())) == (ExitCode.FAILED, 1)


async def test_a_file_that_is_wrong_is_told_and_not_applied(make_admin, tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("limits: {proxy: {publish: {messages: x}}}\n")
    result = await sluice(await make_admin(limits=_LIMITS), "apply", file)
    assert result.exit_code == 1
    assert "limits.proxy.publish.messages: 'x': write a rate" in result.stderr


async def test_a_file_without_limits_takes_none_away_by_mistake(make_admin, tmp_path: Path) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    file = tmp_path / "other.yaml"
    file.write_text("proxy_id: p\n")
    result = await sluice(admin, "apply", file)
    assert (result.exit_code, result.stderr) == (
        1,
        f"sluice: {file}: has no limits; to take all away write `limits: {{}}`\n",
    )
    assert list(admin.store.policies()) == []


async def test_audit_shows_who_changed_what(make_admin) -> None:
    admin: Admin = await make_admin()
    assert (await sluice(admin, "audit")).stdout.startswith("nothing has been changed at run time; ")
    await admin.ask("POST", "/admin/v2/namespaces/acme/shop/publishRate", json={"publishThrottlingRateInMsg": 5})
    heading, *rows = (await sluice(admin, "audit")).stdout.splitlines()
    assert heading.rstrip().endswith("  publish topic_of_namespace acme/shop")
    assert [row.split()[:3] for row in rows] == [
        ["by", "anonymous", "(127.0.0.1)"],
        ["from", "no", "limit"],
        ["to", "messages", "5"],
    ]


async def test_a_group_of_which_only_the_name_is_said_is_exported_compared_and_applied(make_admin, tmp_path) -> None:
    admin: Admin = await make_admin(limits={"resource_groups": {"gold": {}}})
    other: Admin = await make_admin()
    file = tmp_path / "limits.yaml"
    assert (await sluice(admin, "export", "--output", file)).exit_code == 0
    groups: dict[str, object] = {"resource_groups": {"gold": {"namespaces": []}}}
    assert yaml.safe_load(file.read_text()) == {"limits": groups, "blocks": []}
    assert (await sluice(admin, "diff", file)).exit_code == 0
    result = await sluice(other, "diff", file)
    assert result.stdout.splitlines() == ["limits.resource_groups.gold", "  file:     there", "  in force: -"]
    assert (await sluice(other, "apply", file)).exit_code == 0
    assert await other.ask("GET", "/admin/v2/resourcegroups") == (200, ["gold"])
    await other.ask("POST", "/admin/v2/namespaces/acme/shop/resourcegroup/gold")
    assert "resource group: gold" in (await sluice(other, "explain", "acme/shop/orders")).stdout

    file.write_text("limits: {}")
    assert (await sluice(admin, "apply", file)).exit_code == 0
    assert await admin.ask("GET", "/admin/v2/resourcegroups") == (200, ["gold"]), "it stands in the proxy's own file"


@pytest.mark.slow
async def test_100_000_topics_are_applied_with_the_bounds_that_hold_by_default(make_admin, tmp_path) -> None:
    admin: Admin = await make_admin()
    file = tmp_path / "many.yaml"
    names = (f"persistent://acme/shop-{number % 500}/orders-{number}" for number in range(100_000))
    file.write_text("limits:\n  topics:\n" + "".join(f"    {name}: {{publish: {{messages: 5}}}}\n" for name in names))
    done = await sluice(admin, "apply", file)
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(admin.engine.registry.policies.by_name("publish", Setting.TOPIC)) == 100_000


async def test_a_set_over_the_bound_is_refused_with_the_key_that_widens_it(make_admin, tmp_path) -> None:
    admin: Admin = await make_admin(admin_access={"max_body": 100, "max_policies_body": 100})
    file = tmp_path / "limits.yaml"
    file.write_text(
        "limits: {roles: {" + ", ".join(f"r{number}: {{publish: {{messages: 5}}}}" for number in range(9)) + "}}"
    )
    refused = await sluice(admin, "apply", file)
    reason = "PUT /sluice/policies: a body of more than 100 bytes (admin_access.max_policies_body)"
    assert (refused.exit_code, refused.stderr) == (1, f"sluice: {reason}\n")
    assert admin.engine.registry.policies.by_name("publish", Setting.ROLE) == {}


async def test_blocks_are_exported_and_block_the_same_elsewhere(make_admin, tmp_path) -> None:
    admin: Admin = await make_admin(blocks=[{"address": "192.0.2.0/24", "reason": "scans"}])
    other: Admin = await make_admin(blocks=[{"role": "billing"}])
    narrow = {
        "kind": "producer",
        "name": "a, [b]: 'c'",
        "topic": "persistent://acme/shop/orders",
        "reason": "floods: 5",
    }
    await admin.ask("POST", "/sluice/blocks", json=narrow)
    await admin.ask("POST", "/sluice/blocks", json={"kind": "topic", "name": "persistent://acme/shop/odd"})
    file = tmp_path / "exported.yaml"
    assert (await sluice(admin, "export", "--output", file)).exit_code == 0
    assert (await asyncio.to_thread(CliRunner().invoke, app, ["check", "--config", str(file)])).exit_code == 0
    assert (await sluice(admin, "diff", file)).exit_code == 0
    assert (
        "block of role 'billing'\n  file:     -\n  in force: blocked (file)"
        in (await sluice(other, "diff", file)).stdout
    )
    assert (await sluice(other, "apply", file)).exit_code == 0
    assert (await sluice(other, "diff", file)).exit_code == 0
    keys = [[rule.key for rule in each.engine.blocklist.rules.all()] for each in (admin, other)]
    assert keys[0] == keys[1]
    assert len(keys[0]) == 3
    assert (await sluice(other, "apply", file)).stdout == "nothing to change: these limits are in force\n"


async def test_export_replaces_a_file_only_with_force(make_admin, tmp_path) -> None:
    admin: Admin = await make_admin(limits=_LIMITS)
    file = tmp_path / "limits.yaml"
    file.write_text("mine")
    for json in ((), ("--json",)):
        refused = await sluice(admin, "export", "--output", file, *json)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"sluice: {file}: is there already; ")
        assert file.read_text() == "mine"
        assert (await sluice(admin, "export", "--output", file, "--force", *json)).exit_code == 0
        assert file.read_text() == (await sluice(admin, "export")).stdout
        file.write_text("mine")


async def test_blocks_hold_as_in_a_file_that_has_the_key_blocks(make_admin, tmp_path) -> None:
    admin: Admin = await make_admin(blocks=[{"role": "billing"}])
    file = tmp_path / "limits.yaml"
    file.write_text("limits: {}\n")
    assert (await sluice(admin, "diff", file)).exit_code == 0
    assert (await sluice(admin, "apply", file)).exit_code == 0
    assert len(admin.engine.blocklist.rules) == 1
    file.write_text("limits: {}\nblocks: []\n")
    result = await sluice(admin, "diff", file)
    assert (result.exit_code, result.stdout) == (
        ExitCode.FINDINGS,
        "block of role 'billing'\n  file:     -\n  in force: blocked (file)\n",
    )
    assert (
        await sluice(admin, "apply", "--dry-run", file)
    ).stdout == "would change: block of role 'billing': blocked -> -\n"
    assert len(admin.engine.blocklist.rules) == 1
    assert (await sluice(admin, "apply", file)).exit_code == 0
    assert len(admin.engine.blocklist.rules) == 0
    assert (await sluice(admin, "diff", file)).exit_code == 0


async def test_most_possible_blocks_are_exchanged_for_as_many_others(make_admin, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("proxy.block_rules.MOST_RULES", 2)
    admin: Admin = await make_admin(blocks=[{"role": "a"}, {"role": "b"}])
    file = tmp_path / "limits.yaml"
    file.write_text("limits: {}\nblocks: [{role: c}, {role: b, reason: late}]\n")
    assert (await sluice(admin, "apply", file)).exit_code == 0
    assert [(rule.key.name, rule.reason) for rule in admin.engine.blocklist.rules.all()] == [("b", "late"), ("c", "")]
