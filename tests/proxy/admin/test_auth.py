"""Who may use the admin address."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from proxy.admin.auth import CALLER, Authenticator, Caller
from proxy.admin.refusals import CallerRefusedError, RefusalCause, RefusalLog
from proxy.config.model import ConfigError
from proxy.config.sections import AdminAccess
from tests.proxy.admin_client import Admin
from tests.proxy.certificates import Authority
from tests.proxy.rereading import read_again

BLOCKS = "/sluice/blocks"
BLOCK = {"kind": "address", "name": "192.0.2.7"}
WRITE, READ = "write-0123456789", "read-0123456789a"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.yaml"
    path.touch(mode=0o600)
    path.write_text(
        yaml.safe_dump({"ops": {"access": "write", "token": WRITE}, "prom": {"access": "read", "token": READ}})
    )
    return path


@pytest.fixture
def make_doors(authority: Authority):
    def make(**more: Any) -> Authenticator:
        tls = {**authority.server(), "client_ca": authority.certificate, **more}
        return Authenticator(AdminAccess.model_validate({"tls": tls}), RefusalLog(Counter(), lambda: 0))

    return make


def rewrite(tokens: Path, token: str) -> None:
    tokens.write_text(yaml.safe_dump({"ops": {"access": "write", "token": token}}))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_without_locks_everybody_may_do_everything(make_admin) -> None:
    admin: Admin = await make_admin()
    assert (await admin.ask("POST", BLOCKS, json=BLOCK))[0] == 200
    assert (await admin.ask("GET", BLOCKS))[0] == 200
    assert (await admin.ask("GET", "/metrics"))[0] == 200


async def test_a_token_that_nobody_needs_hurts_nobody(make_admin) -> None:
    admin: Admin = await make_admin()
    assert (await admin.ask("GET", "/metrics", headers=bearer("any-of-them-will-do")))[0] == 200


@pytest.mark.parametrize(
    ("method", "token", "status"),
    [
        ("GET", READ, 200),
        ("HEAD", READ, 200),
        ("POST", READ, 403),
        ("DELETE", READ, 403),
        ("PUT", READ, 403),
        ("OPTIONS", READ, 403),
        ("GET", WRITE, 200),
        ("POST", WRITE, 200),
        ("DELETE", WRITE, 200),
        ("PUT", WRITE, 405),
        ("GET", "neither-of-them-", 401),
        ("POST", "neither-of-them-", 401),
    ],
)
async def test_a_token_opens_what_it_is_for(make_admin, tokens: Path, method: str, token: str, status: int) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    more = {"POST": {"json": BLOCK}, "DELETE": {"params": BLOCK}}.get(method, {})
    assert (await admin.ask(method, BLOCKS, headers=bearer(token), **more))[0] == status


@pytest.mark.parametrize(
    "path", ["/metrics", "/sluice/streams", BLOCKS, "/nothing/here", "/healthz/", "/healthz/../metrics"]
)
async def test_without_a_token_nothing_is_said_not_even_what_there_is(make_admin, tokens: Path, path: str) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    assert await admin.ask("GET", path) == (
        401,
        {"reason": "a token is needed here: Authorization: Bearer TOKEN"},
    )


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 503)])
async def test_probes_need_no_token_and_a_wrong_one_does_not_matter(
    make_admin, tokens: Path, path: str, status: int
) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    assert (await admin.ask("GET", path))[0] == status
    assert (await admin.ask("GET", path, headers=bearer("neither-of-them-")))[0] == status
    assert (await admin.ask("POST", path))[0] == 401


@pytest.mark.parametrize(
    ("headers", "kind", "reason"),
    [
        ({}, "missing", "a token is needed here"),
        (bearer("neither-of-them-"), "wrong", "this token is not known here"),
        ({"Authorization": WRITE}, "wrong", "write one header Authorization: Bearer TOKEN"),
        ({"Authorization": f"Basic {WRITE}"}, "wrong", "write one header"),
        ({"Authorization": ""}, "wrong", "write one header"),
        ({"Authorization": "Bearer"}, "wrong", "this token is not known here"),
    ],
)
async def test_who_is_refused_is_told_counted_and_logged(
    make_admin, tokens: Path, headers: dict[str, str], kind: str, reason: str
) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    with capture_logs() as logs:
        async with admin.client.get("/sluice/streams", headers=headers) as answer:
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            body = await answer.json()
    assert body["reason"].startswith(reason)
    assert [(line["kind"], line["caller"], line["detail"]) for line in logs] == [(kind, "127.0.0.1", body["reason"])]
    _, metrics = await admin.ask("GET", "/metrics", headers=bearer(READ))
    assert f'sluice_admin_refused_total{{kind="{kind}"}} 1.0' in metrics


async def test_two_headers_are_one_too_many(make_admin, tokens: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    twice = [("Authorization", f"Bearer {WRITE}"), ("Authorization", "Bearer other-other-other")]
    assert (await admin.ask("GET", BLOCKS, headers=twice))[0] == 401


async def test_who_may_only_read_is_told_so(make_admin, tokens: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    async with admin.client.post(BLOCKS, headers=bearer(READ)) as answer:
        assert answer.status == 403
        assert "WWW-Authenticate" not in answer.headers
        assert await answer.json() == {"reason": "prom may only read: POST needs write access"}
    assert admin.engine.counters.admin_refused == {"read_only": 1}
    assert len(admin.engine.blocklist.rules.all()) == 0


async def test_a_refused_body_is_not_read(make_admin, tokens: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": tokens, "max_body": 10})
    assert (await admin.ask("POST", BLOCKS, data=b"x" * 11))[0] == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_name_of_the_scheme_is_read_in_any_case(make_admin, tokens: Path, scheme: str) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    assert (await admin.ask("GET", BLOCKS, headers={"Authorization": f"{scheme} {READ}"}))[0] == 200


@pytest.mark.parametrize(
    ("locks", "headers", "caller"),
    [
        (False, {}, Caller("anonymous", "127.0.0.1", "write")),
        (True, bearer(READ), Caller("prom", "127.0.0.1", "read")),
        (True, bearer(WRITE), Caller("ops", "127.0.0.1", "write")),
    ],
)
async def test_handlers_learn_who_calls(tokens: Path, *, locks: bool, headers: dict[str, str], caller: Caller) -> None:
    admin = Admin(**({"admin_access": {"tokens": tokens}} if locks else {}))
    seen: list[Caller] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request[CALLER])
        return web.Response()

    admin.app.router.add_get("/who", handler)
    async with admin.client:
        await admin.ask("GET", "/who", headers=headers)
    assert seen == [caller]


async def test_new_tokens_count_once_they_are_read_again(make_admin, tokens: Path) -> None:
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    rewrite(tokens, "another-012345678")
    assert (await admin.ask("GET", BLOCKS, headers=bearer(WRITE)))[0] == 200
    take = read_again(admin.authenticator)
    assert (await admin.ask("GET", BLOCKS, headers=bearer(WRITE)))[0] == 200
    take()
    assert (await admin.ask("GET", BLOCKS, headers=bearer(WRITE)))[0] == 401
    assert (await admin.ask("GET", BLOCKS, headers=bearer("another-012345678")))[0] == 200


def test_a_broken_file_leaves_tokens_and_certificates_as_they_were(
    authority: Authority, tokens: Path, tmp_path: Path
) -> None:
    good = {key: Path(path).read_bytes() for key, path in authority.server().items()}
    own = {key: tmp_path / key for key in good}
    for key, path in own.items():
        path.write_bytes(good[key])
    access = AdminAccess.model_validate({"tokens": tokens, "tls": own})
    authenticator = Authenticator(access, RefusalLog(Counter(), lambda: 0))
    context = authenticator.context()
    own["key"].write_text("broken")
    rewrite(tokens, "another-012345678")
    with pytest.raises(ConfigError, match=r"admin_access\.tls"):
        read_again(authenticator)
    own["key"].write_bytes(good["key"])
    tokens.write_text("broken")
    with pytest.raises(ConfigError, match=r"admin_access\.tokens"):
        read_again(authenticator)
    assert authenticator.context() is context
    assert authenticator._tokens is not None
    assert authenticator._tokens.find(WRITE) is not None


def test_new_certificates_are_for_new_connections(make_doors) -> None:
    authenticator: Authenticator = make_doors()
    before = authenticator.context()
    read_again(authenticator)()
    assert before is not None
    assert authenticator.context() is not before


@pytest.mark.parametrize(
    ("certificate", "refused"),
    [
        (None, RefusalCause.MISSING),
        ({}, RefusalCause.MISSING),
        ({"subject": ((("organizationName", "acme"),),)}, RefusalCause.WRONG),
    ],
)
def test_a_certificate_has_to_name_its_caller(make_doors, certificate: Any, refused: RefusalCause) -> None:
    authenticator: Authenticator = make_doors()
    with pytest.raises(CallerRefusedError) as error:
        authenticator._by_certificate(certificate)
    assert (error.value.why, error.value.status) == (refused, 401)


@pytest.mark.parametrize(("name", "access"), [("alice", "write"), ("viewer", "read")])
def test_a_certificate_may_write_unless_it_is_listed(make_doors, name: str, access: str) -> None:
    authenticator: Authenticator = make_doors(read_only=["viewer"])
    assert authenticator._by_certificate({"subject": ((("commonName", name),),)}) == (name, access)


@pytest.mark.parametrize(
    ("write", "name", "access"),
    [
        (["ops"], "ops", "write"),
        (["ops"], "alice", "read"),
        (["ops"], "viewer", "read"),
        (["ops"], "Ops", "read"),
        ([], "ops", "read"),
    ],
)
def test_where_writers_are_listed_nobody_else_may_write(make_doors, write: list[str], name: str, access: str) -> None:
    authenticator: Authenticator = make_doors(read_only=["viewer"], write=write)
    assert authenticator._by_certificate({"subject": ((("commonName", name),),)}) == (name, access)
