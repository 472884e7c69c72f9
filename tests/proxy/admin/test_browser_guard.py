"""What a web page in an operator's browser may do at the admin address, and what tools may."""

import asyncio
from pathlib import Path

import pytest
import yaml

from proxy.config.model import ConfigError, load_config
from tests.proxy.admin_client import Admin

BLOCKS = "/sluice/blocks"
BLOCK = {"kind": "address", "name": "192.0.2.7"}
RELOAD = "/sluice/reload"
NAMESPACE = "/admin/v2/namespaces/acme/shop"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "10.1.2.3", "localhost:8080", "LOCALHOST", "sluice.example:8080"],
)
async def test_who_names_an_address_or_a_name_of_ours_is_let_in(make_admin, host: str) -> None:
    admin: Admin = await make_admin(admin="127.0.0.1:0", admin_access={"hosts": ["Sluice.Example"]})
    assert (await admin.ask("GET", BLOCKS, headers={"Host": host}))[0] == 200
    assert (await admin.ask("POST", BLOCKS, json=BLOCK, headers={"Host": host}))[0] == 200
    assert admin.engine.counters.admin_refused == {}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil@127.0.0.1",
        "127.0.0.1/evil",
        "[::1",
        "2130706433",
        "",
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", BLOCKS), ("GET", "/metrics"), ("GET", "/nothing/here"), ("POST", RELOAD)]
)
async def test_a_name_that_leads_here_without_being_ours_learns_and_changes_nothing(
    make_admin, host: str, method: str, path: str
) -> None:
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": {"publish": {"messages": 9}}}})
    same_site = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    status, answer = await admin.ask(method, path, headers=same_site)
    assert (status, list(answer)) == (403, ["reason"])
    assert answer["reason"].startswith(f"Host: {host!r}: ")
    assert "admin_access.hosts" in answer["reason"]
    assert admin.engine.counters.admin_refused == {"host": 1}
    assert admin.engine.counters.reloads == {}


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://evil.example", 403),
        ("http://evil.example:8080", 403),
        ("http://evil@127.0.0.1", 403),
        ("HTTP://evil.example", 403),
        ("http://127.0.0.1:8080", 200),
        ("http://[::1]:8080", 200),
        ("http://localhost", 200),
        ("", 200),
    ],
)
async def test_a_target_with_a_host_counts_as_one(make_admin, target: str, status: int) -> None:
    admin: Admin = await make_admin()
    await admin.client.start_server()
    reader, writer = await asyncio.open_connection("127.0.0.1", admin.client.port)
    writer.write(f"GET {target}{BLOCKS} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert int(answer.split()[1]) == status
    assert (b"admin_access.hosts" in answer) == (status == 403)


async def test_who_is_refused_so_is_on_metrics(make_admin) -> None:
    admin: Admin = await make_admin()
    await admin.ask("GET", BLOCKS, headers={"Host": "evil.example"})
    await admin.ask("POST", RELOAD, headers={"Origin": "http://evil.example"})
    _, metrics = await admin.ask("GET", "/metrics")
    assert 'sluice_admin_refused_total{kind="host"} 1.0' in metrics
    assert 'sluice_admin_refused_total{kind="cross_site"} 1.0' in metrics


async def test_the_name_in_admin_is_one_of_ours(make_admin) -> None:
    admin: Admin = await make_admin(admin="Proxy-1:0")
    assert (await admin.ask("GET", BLOCKS, headers={"Host": "proxy-1:8080"}))[0] == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_are_answered_by_any_name(make_admin, path: str) -> None:
    admin: Admin = await make_admin()
    admin.readiness.is_accepting = False
    assert (await admin.ask("GET", path, headers={"Host": "pod.cluster.local"}))[0] in {200, 503}
    assert admin.engine.counters.admin_refused == {}


async def test_behind_tokens_the_name_does_not_matter(make_admin, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.touch(mode=0o600)
    tokens.write_text(yaml.safe_dump({"ops": {"access": "write", "token": "write-0123456789"}}))
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    any_name = {"Host": "sluice.example", "Authorization": "Bearer write-0123456789"}
    assert (await admin.ask("POST", BLOCKS, json=BLOCK, headers=any_name))[0] == 200
    from_elsewhere = any_name | {"Origin": "https://evil.example"}
    assert (await admin.ask("POST", BLOCKS, json=BLOCK, headers=from_elsewhere))[0] == 403


@pytest.mark.parametrize(
    "browser",
    [
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"Origin": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", RELOAD),
        ("POST", BLOCKS),
        ("DELETE", f"{BLOCKS}?kind=address&name=192.0.2.7"),
        ("POST", f"{NAMESPACE}/resourcegroup/gold"),
        ("DELETE", f"{NAMESPACE}/publishRate"),
        ("POST", "/admin/v2/brokers/configuration/maxPublishRatePerTopicInMessages/5"),
        ("PUT", "/sluice/policies"),
        ("OPTIONS", BLOCKS),
    ],
)
async def test_a_page_of_another_site_changes_nothing(
    make_admin, browser: dict[str, str], method: str, path: str
) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask(method, path, data='{"kind": "role", "name": "x"}', headers=browser)
    assert (status, "for another site's page" in answer["reason"]) == (403, True)
    assert admin.engine.counters.admin_refused == {"cross_site": 1}
    assert (len(admin.engine.blocklist.rules.all()), admin.engine.counters.reloads) == (0, {})
    assert list(admin.store.policies()) == []


@pytest.mark.parametrize(
    "browser",
    [
        {"Host": "localhost:8080", "Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"},
        {"Host": "localhost:8080", "Origin": "http://localhost:8080"},
        {"Host": "127.0.0.1", "Origin": "https://ops.example", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=str,
)
async def test_a_page_of_this_very_site_may_and_so_may_the_user(make_admin, browser: dict[str, str]) -> None:
    admin: Admin = await make_admin()
    assert (await admin.ask("POST", RELOAD, headers=browser))[0] == 200


async def test_a_link_from_anywhere_may_be_followed(make_admin) -> None:
    admin: Admin = await make_admin()
    assert (await admin.ask("GET", "/sluice/status", headers={"Sec-Fetch-Site": "cross-site"}))[0] == 200


@pytest.mark.parametrize("name", ["http://a", "a:8080", "*.a", "", "a b"])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump({"admin_access": {"hosts": [name]}}))
    with pytest.raises(ConfigError, match=r"admin_access\.hosts\.0: .*write a name as proxy-1\.example"):
        load_config(path, {})
