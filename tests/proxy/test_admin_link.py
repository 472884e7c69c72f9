"""Asking an admin address, whatever locks it has: each trouble is one line with its remedy."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from proxy.cli.admin_link import AdminLink
from proxy.cli.options import AdminLinkError, AdminOptions
from tests.proxy.admin_client import Admin
from tests.proxy.certificates import Authority

WRITE, READ = "write-0123456789", "read-0123456789a"
BLOCK = {"kind": "role", "name": "a&b=ü"}
SERVER = "--admin must be the admin address of a running `sluice serve`, with https:// if that has TLS"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A folder with the proxy's tokens, and a file for each caller."""
    holders = {"ops": {"access": "write", "token": WRITE}, "prom": {"access": "read", "token": READ}}
    for name, text in {"tokens.yaml": yaml.safe_dump(holders), "ops": WRITE + "\n", "prom": READ}.items():
        path = tmp_path / name
        path.touch(mode=0o600)
        path.write_text(text)
    return tmp_path


@asynccontextmanager
async def with_tls(admin: Admin) -> AsyncIterator[str]:
    server = TestServer(admin.app)
    await server.start_server(ssl=admin.authenticator.context())
    try:
        yield f"https://localhost:{server.port}"
    finally:
        await server.close()


async def asked(options: AdminOptions, ask: Callable[[AdminLink], Any]) -> Any:
    return await asyncio.to_thread(lambda: ask(AdminLink(options)))


async def trouble(options: AdminOptions, ask: Callable[[AdminLink], Any] | None = None) -> str:
    with pytest.raises(AdminLinkError) as refused:
        await asked(options, ask or (lambda link: link.get_json("/sluice/blocks")))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def address_of(admin: Admin) -> str:
    return f"127.0.0.1:{admin.client.port}"


async def test_an_open_address_needs_nothing_but_its_name(make_admin) -> None:
    admin: Admin = await make_admin()
    for address in (address_of(admin), f"http://{address_of(admin)}", f"http://{address_of(admin)}/"):
        done = await asked(AdminOptions(address), lambda link: link.call("POST", "/sluice/blocks", BLOCK))
        assert done["block"]["name"] == "a&b=ü"
        assert (await asked(AdminOptions(address), lambda link: link.call("DELETE", "/sluice/blocks", query=BLOCK)))[
            "unblocked"
        ]


async def test_an_answer_without_a_body_is_none(make_admin) -> None:
    admin: Admin = await make_admin()
    path, body = "/admin/v2/namespaces/acme/shop/publishRate", {"publishThrottlingRateInMsg": 5}
    options = AdminOptions(address_of(admin))
    assert await asked(options, lambda link: link.call("POST", path, body)) is None
    assert (await asked(options, lambda link: link.get_json(path)))["publishThrottlingRateInMsg"] == 5


async def test_a_token_opens_what_it_is_for(make_admin, secrets: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": secrets / "tokens.yaml"})
    reader, writer = (AdminOptions(address_of(admin), secrets / name) for name in ("prom", "ops"))
    await asked(writer, lambda link: link.call("POST", "/sluice/blocks", BLOCK))
    assert len((await asked(reader, lambda link: link.get_json("/sluice/blocks")))["blocks"]) == 1
    refused = await trouble(reader, lambda link: link.call("POST", "/sluice/blocks", BLOCK))
    assert refused == f"{address_of(admin)}: prom may only read: POST needs write access"


async def test_no_token_and_a_wrong_one_are_told_apart(make_admin, secrets: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": secrets / "tokens.yaml"})
    (secrets / "old").write_text("not-known-any-more")
    address = address_of(admin)
    assert await trouble(AdminOptions(address)) == (
        f"{address}: a token is needed here: Authorization: Bearer TOKEN; "
        "--token-file FILE gives a token, --cert and --key a certificate"
    )
    wrong = await trouble(AdminOptions(address, secrets / "old"))
    assert wrong == f"{address}: this token is not known here (--token-file {secrets / 'old'})"


class Elsewhere(socket.socket):
    """A connection that says it leads to some other address than it does."""

    address = ""

    def getpeername(self) -> Any:
        return self.address, 8080


@pytest.fixture
def leading_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def lead(address: str) -> None:
        def connect(to: tuple[str, int], timeout: float, **_: Any) -> Elsewhere:
            connection = Elsewhere()
            connection.address = address
            connection.settimeout(timeout)
            connection.connect(to)
            return connection

        monkeypatch.setattr("urllib3.util.connection.create_connection", connect)

    return lead


@pytest.mark.parametrize("peer", ["192.0.2.7", "2001:db8::7", "fe80::1%eth0", "10.0.0.1"])
async def test_a_token_goes_to_no_other_machine_in_the_clear_unless_told(
    make_admin, secrets: Path, leading_elsewhere: Callable[[str], None], peer: str
) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": secrets / "tokens.yaml"})
    address = address_of(admin)
    leading_elsewhere(peer)
    assert await trouble(AdminOptions(address, secrets / "ops")) == (
        f"{address}: the token would go to {peer} in the clear: "
        "https://HOST:PORT, or --plain-http if nobody listens on the way"
    )
    options = AdminOptions(address, secrets / "ops", plain_http=True)
    assert (await asked(options, lambda link: link.get_json("/sluice/blocks")))["blocks"] == []
    assert "a token is needed here" in await trouble(AdminOptions(address)), "without a token there is no secret"


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1"])
async def test_on_this_machine_nobody_listens(
    make_admin, secrets: Path, leading_elsewhere: Callable[[str], None], peer: str
) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": secrets / "tokens.yaml"})
    leading_elsewhere(peer)
    options = AdminOptions(address_of(admin), secrets / "ops")
    assert (await asked(options, lambda link: link.get_json("/sluice/blocks")))["blocks"] == []


async def test_the_status_of_a_refusal_is_kept(make_admin) -> None:
    admin: Admin = await make_admin()
    with pytest.raises(AdminLinkError) as refused:
        await asked(AdminOptions(address_of(admin)), lambda link: link.get("/no/such"))
    assert (refused.value.status, str(refused.value)) == (404, "GET /no/such: Not Found")


async def test_tls_is_trusted_by_the_authority_that_is_named_and_by_no_other(
    make_admin, authority: Authority, tmp_path: Path
) -> None:
    admin: Admin = await make_admin(admin_access={"tls": authority.server()})
    stranger = Authority(tmp_path / "stranger").certificate
    async with with_tls(admin) as url:
        good = AdminOptions(url, ca=authority.certificate)
        assert await asked(good, lambda link: link.get_json("/sluice/blocks")) == {"blocks": [], "lifted": []}
        bare = AdminOptions(url.removeprefix("https://"), ca=authority.certificate)
        assert await asked(bare, lambda link: link.get("/healthz")) == b"alive\n"
        remedy = "--ca FILE names who has signed it, --admin must be a name in it"
        for options in (AdminOptions(url), AdminOptions(url, ca=stranger)):
            problem = await trouble(options)
            assert problem.startswith(f"{url}: its certificate is not trusted (")
            assert problem.endswith(f"); {remedy}")


async def test_a_certificate_of_another_name_is_not_trusted(make_admin, authority: Authority) -> None:
    certificate, key = authority.sign("elsewhere", extensions="subjectAltName=DNS:elsewhere\n")
    admin: Admin = await make_admin(admin_access={"tls": {"certificate": certificate, "key": key}})
    async with with_tls(admin) as url:
        problem = await trouble(AdminOptions(url, ca=authority.certificate))
    assert "certificate is not valid for 'localhost'" in problem


async def test_a_client_certificate_opens_what_its_name_may(make_admin, authority: Authority, tmp_path: Path) -> None:
    tls = {**authority.server(), "client_ca": str(authority.certificate), "read_only": ["reader"]}
    admin: Admin = await make_admin(admin_access={"tls": tls})
    strange = Authority(tmp_path / "strangers").sign("ops")
    async with with_tls(admin) as url:

        def options(files: tuple[Path, Path]) -> AdminOptions:
            return AdminOptions(url, None, authority.certificate, *files)

        def post(link: AdminLink) -> Any:
            return link.call("POST", "/sluice/blocks", BLOCK)

        assert (await asked(options(authority.sign("ops")), post))["block"]
        assert await trouble(options(authority.sign("reader")), post) == (
            f"{url}: reader may only read: POST needs write access"
        )
        assert "a client certificate is needed here" in await trouble(AdminOptions(url, ca=authority.certificate))
        assert (await trouble(options(strange))).startswith(f"{url}: ")


async def test_tls_and_none_mixed_up_are_told(make_admin, authority: Authority) -> None:
    admin: Admin = await make_admin(admin_access={"tls": authority.server()})
    problem = await trouble(AdminOptions(f"https://{address_of(admin)}"))
    assert problem.endswith("does not speak TLS; http://HOST:PORT without --ca and --cert")
    async with with_tls(admin) as url:
        problem = await trouble(AdminOptions(url.removeprefix("https://")))
    assert problem.endswith(f"); {SERVER}")


async def test_nobody_there_is_one_line_with_address_and_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    assert await trouble(AdminOptions(address)) == f"{address}: no answer (Connection refused); {SERVER}"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        *((none, "is not host:port") for none in ("nonsense", "127.0.0.1:x", "", "https://h", "https://h:1/path")),
        ("http://u:secret@h:80", "is not host:port"),
        ("ftp://h:1", "ftp:// is not taken here"),
        ("pulsar+ssl://h:1", "pulsar+ssl:// is not taken here"),
        ("https://a:1,b:1", "names several hosts"),
    ],
)
def test_an_address_that_is_none_is_said_so(address: str, problem: str) -> None:
    with pytest.raises(AdminLinkError) as refused:
        AdminLink(AdminOptions(address))
    text = str(refused.value)
    assert text.startswith(f"--admin: {address!r}: {problem}; write ")
    assert "127.0.0.1:8080 or https://HOST:PORT" in text
    assert text.endswith("; a token goes into --token-file")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>", "HTTP 404: the answer is not Sluice's; "),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "HTTP 302: the answer is not Sluice's; "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "the answer is not Sluice's; --admin"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff{", "the answer is not Sluice's; --admin"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "no answer (IncompleteRead"),
        (b"SSH-2.0-server\r\n", "no answer (SSH-2.0-server"),
    ],
)
async def test_another_kind_of_server_is_said_so(answer: bytes, problem: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert (await trouble(AdminOptions(address))).startswith(f"{address}: {problem}")


async def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b" " * 20_000)

    monkeypatch.setattr("adminrest.client.MOST_BYTES", 10_000)
    endless = web.Application()
    endless.router.add_get("/sluice/blocks", answer)
    async with TestServer(endless) as server:
        problem = await trouble(AdminOptions(f"{server.host}:{server.port}"))
    assert "it has more than 10000 bytes" in problem


@pytest.mark.parametrize("text", ["", "two words", "über", "a\nb"])
def test_a_file_without_a_token_is_told_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(AdminLinkError) as refused:
        AdminLink(AdminOptions("127.0.0.1:1", token_file=path))
    assert str(refused.value) == f"--token-file: {path}: must hold one token in one line, and nothing else"


def test_every_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    gone, text = tmp_path / "gone", tmp_path / "text"
    text.write_text("no PEM")
    cert, key = authority.sign("ops")
    url = "https://localhost:1"
    for options, problem in (
        (AdminOptions(url, gone), f"--token-file: {gone}: cannot be read: No such file or directory"),
        (AdminOptions(url, ca=gone), f"--ca: {gone}: cannot be read: No such file or directory"),
        (AdminOptions(url, ca=text), f"--ca: {text}: is not a PEM certificate"),
        (AdminOptions(url, cert=gone), f"--cert: {gone}: cannot be read: No such file or directory"),
        (AdminOptions(url, cert=cert), f"--cert: {cert}: is not a PEM certificate with its private key (--key FILE)"),
        (AdminOptions(url, key=key), f"--key: {key}: needs its certificate: add --cert FILE"),
        (
            AdminOptions("http://localhost:1", ca=cert),
            "--admin: http://localhost:1: has no TLS; write https:// to use --ca, ",
        ),
    ):
        with pytest.raises(AdminLinkError) as refused:
            AdminLink(options)
        assert str(refused.value).startswith(problem)
