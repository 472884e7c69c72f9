"""However long a file is that is read again, a thread reads it, and the loop does little to put it in force."""

import asyncio
import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from proxy import reload as reloading
from proxy.assembly import ConfigSource, Proxy
from proxy.bulk import let_go
from proxy.config.model import Config
from tests.proxy.calls import calls_of
from tests.proxy.identity.keys import public, token_files
from tests.proxy.tls import Authorities
from tests.waiting import PATIENCE_S

KEYS, USERS = 100, 20_000
MOST = 150
"""Calls, of Python or of C, that put a file in force."""


def long_files(folder: Path) -> dict[str, Any]:
    """Write each file that a configuration may name, as long as it may be; return the configuration."""
    authorities = Authorities(folder)
    bundle = folder / "bundle.pem"
    bundle.write_bytes(authorities.front.cert_pem.bytes() * KEYS)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(KEYS)]
    jwks = [{**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": str(n)} for n, key in enumerate(keys)]
    (folder / "jwks.json").write_text(json.dumps({"keys": jwks}))
    (folder / "public.pem").write_bytes(public(keys[0]))
    users = folder / "htpasswd"
    users.write_text("".join(f"u{number}:{{SHA}}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n" for number in range(USERS)))
    tokens = folder / "tokens.yaml"
    tokens.write_text(
        "".join(f"t{number}: {{access: read, token: token-of-sixteen-{number}}}\n" for number in range(KEYS))
    )
    for private in (users, tokens):
        private.chmod(0o600)
    proved = token_files(folder)
    proved["token"] |= {"public_key": str(folder / "public.pem"), "jwks": str(folder / "jwks.json")}
    tls = authorities.tls(client_auth="optional") | {"client_ca": str(bundle)}
    return {
        **authorities.settings(),
        "tls": tls,
        "broker": "pulsar+ssl://127.0.0.1:6651",
        "broker_tls": {"ca": str(bundle)},
        "authentication": {**proved, "basic": {"htpasswd": str(users)}},
        "admin": "127.0.0.1:0",
        "admin_access": {"tls": authorities.tls() | {"client_ca": str(bundle)}, "tokens": str(tokens)},
        "admin_forward": {"url": "https://127.0.0.1:8443", "ca": str(bundle)},
    }


@pytest.fixture
async def proxy(tmp_path: Path):
    config = Config.model_validate(long_files(tmp_path))
    proxy = Proxy(ConfigSource(None, lambda: config))
    yield proxy
    await proxy.stop()


async def test_loop_does_little_to_put_a_long_file_in_force(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    main, freed = threading.current_thread(), list[int]()
    done: dict[str, int] = {}

    def counted(key: str, read: Callable[[], Callable[[], object]]) -> Callable[[], object]:
        assert threading.current_thread() is not main
        take, results = read(), list[object]()

        def take_counted() -> object:
            assert threading.current_thread() is main
            done[key] = calls_of(lambda: results.append(take()))
            return results.pop()

        return take_counted

    def freeing(tree: object) -> None:
        assert threading.current_thread() is not main
        freed.append(len(tree) if isinstance(tree, dict) else 0)
        let_go(tree)

    monkeypatch.setattr(reloading, "let_go", freeing)
    files = proxy.reloader._files.items()
    proxy.reloader._files = {key: each._replace(read=partial(counted, key, each.read)) for key, each in files}
    assert (await proxy.reloader.reload("SIGHUP")).problems == ()
    async with asyncio.timeout(PATIENCE_S):
        while USERS not in freed:  # noqa: ASYNC110 - the users that were; a thread frees them
            await asyncio.sleep(0)
    assert set(done) == {
        "tls", "tls.client_ca", "broker_tls.ca", "authentication.token.secret_key", "authentication.token.public_key",
        "authentication.token.jwks", "authentication.basic.htpasswd", "authentication.broker.token_file",
        "admin_access.tls", "admin_access.tls.client_ca", "admin_access.tokens", "admin_forward.ca",
    }  # fmt: skip
    assert max(done.values()) <= MOST, done
