from tests.proxy.admin_client import Admin


async def test_status_tells_which_run_it_is_and_how_the_last_reload_went(make_admin) -> None:
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": {"publish": {"messages": 5}}}})

    status, said = await admin.ask("GET", "/sluice/status")
    assert status == 200
    assert (said["proxy_id"], said["boot_id"], said["version"]) == ("p", "boot", "0")
    assert (said["connections"], said["limiters"], said["reload"]) == (0, 0, None)

    assert (await admin.ask("POST", "/sluice/reload"))[0] == 200
    _, said = await admin.ask("GET", "/sluice/status")
    assert (said["reload"]["cause"], said["reload"]["in_force"]) == ("rest", True)


async def test_a_reload_of_a_broken_configuration_answers_409_with_what_is_wrong(make_admin) -> None:
    admin: Admin = await make_admin()
    admin.problems.append("sluice.yaml: limits.x: this key is not known here")

    status, said = await admin.ask("POST", "/sluice/reload")

    assert status == 409
    assert (said["in_force"], said["problems"]) == (False, ["sluice.yaml: limits.x: this key is not known here"])
