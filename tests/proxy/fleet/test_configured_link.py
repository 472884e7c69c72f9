"""The credentials of the link that a configuration describes."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from limiter.policies import Policies
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.fleet.configured_link import FleetToken, own_auth
from proxy.identity.evidence import Credentials, Verifier
from proxy.session.engine import Engine


def test_brokers_get_the_fleets_present_token_or_the_proxys(tmp_path: Path) -> None:
    engine, file = Engine(Config(), Policies(), Counters()), tmp_path / "token"
    assert own_auth(None, engine) is None
    engine.identity = cast("Verifier", SimpleNamespace(own=Credentials("basic", b"sluice:x")))
    file.write_text("one")
    token = FleetToken(file)
    auth = own_auth(token, engine)
    file.write_text("two")
    (reader,) = token.readers()
    take = reader.read()
    assert auth is not None
    assert (reader.key, auth[1]()) == ("fleet.token_file", b"one"), "a connection reads no file, which may hang"
    take()
    for credentials, expected in ((auth, ("token", b"two")), (own_auth(None, engine), ("basic", b"sluice:x"))):
        assert credentials is not None
        assert (credentials[0], credentials[1]()) == expected
