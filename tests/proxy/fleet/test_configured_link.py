"""The credentials of the link that a configuration describes."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from limiter.policies import Policies
from proxy.config.model import Config
from proxy.config.sections import Fleet
from proxy.counters import Counters
from proxy.fleet.configured_link import own_auth
from proxy.identity.evidence import Credentials, Verifier
from proxy.session.engine import Engine


def test_brokers_get_the_fleets_present_token_or_the_proxys(tmp_path: Path) -> None:
    engine, file = Engine(Config(), Policies(), Counters()), tmp_path / "token"
    assert own_auth(None, engine) is own_auth(Fleet(name="front"), engine) is None
    engine.identity = cast("Verifier", SimpleNamespace(own=Credentials("basic", b"sluice:x")))
    file.write_text("one")
    auth = own_auth(Fleet(name="front", token_file=file), engine)
    file.write_text("two")
    for found, expected in ((auth, ("token", b"two")), (own_auth(None, engine), ("basic", b"sluice:x"))):
        assert found is not None
        assert (found[0], found[1]()) == expected
