from pathlib import Path

from tests.proxy.admin_client import Admin


async def test_status_tells_which_run_it_is_and_how_the_last_reload_went(make_admin) -> None:
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": {"publish": {"messages": 5}}}})

    status, answer = await admin.ask("GET", "/sluice/status")
    assert status == 200
    assert (answer["proxy_id"], answer["boot_id"], answer["version"]) == ("p", "boot", "0")
    assert (answer["connections"], answer["limiters"], answer["reload"]) == (0, 0, None)

    assert (await admin.ask("POST", "/sluice/reload"))[0] == 200
    _, answer = await admin.ask("GET", "/sluice/status")
    assert (answer["reload"]["cause"], answer["reload"]["in_force"]) == ("rest", True)


async def test_who_asked_for_a_reload_is_told_by_the_tokens_name(make_admin, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.touch(mode=0o600)
    tokens.write_text("ops: {access: write, token: write-0123456789}\n")
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    ops = {"Authorization": "Bearer write-0123456789"}

    _, answer = await admin.ask("POST", "/sluice/reload", headers=ops)
    assert (answer["cause"], answer["who"], answer["address"]) == ("rest", "ops", "127.0.0.1")
    assert (await admin.ask("GET", "/sluice/status", headers=ops))[1]["reload"] == answer


async def test_nobody_asked_for_what_a_signal_or_the_file_caused(make_admin) -> None:
    admin: Admin = await make_admin()
    await admin.reloader.reload("SIGHUP")
    _, answer = await admin.ask("GET", "/sluice/status")
    assert [answer["reload"][key] for key in ("cause", "who", "address")] == ["SIGHUP", None, None]


async def test_a_reload_of_a_broken_configuration_answers_409_with_what_is_wrong(make_admin) -> None:
    admin: Admin = await make_admin()
    admin.problems.append("sluice.yaml: limits.x: this key is not known here")

    status, answer = await admin.ask("POST", "/sluice/reload")

    assert status == 409
    assert (answer["in_force"], answer["problems"]) == (False, ["sluice.yaml: limits.x: this key is not known here"])
    assert answer["warnings"] == []
