"""The link to a fleet that a configuration describes, and the credentials that it shows brokers."""

from collections.abc import Callable
from pathlib import Path

from proxy.config.model import Config
from proxy.files import FileReader
from proxy.fleet.link import Callbacks, FleetLink
from proxy.fleet.pulsar_connection import Auth
from proxy.fleet.topic_link import Membership, TopicLink
from proxy.identity.evidence import token_credentials
from proxy.session.engine import Engine

_KEY = "fleet.token_file"


class FleetToken:
    """The token that the fleet's own connections show brokers; each connection shows the one that was read last.

    Args:
        path: Its file.

    Raises:
        ConfigError: If the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._credentials = token_credentials(path, _KEY)

    @property
    def auth(self) -> Auth:
        """The method, and what returns the token of now."""
        return self._credentials.method, lambda: self._credentials.data

    def readers(self) -> tuple[FileReader, ...]:
        """Return the reader of the file."""
        return (FileReader(_KEY, self._read),)

    def _read(self) -> Callable[[], None]:
        credentials = token_credentials(self._path, _KEY)

        def take() -> None:
            self._credentials = credentials

        return take


def link_of(config: Config, token: FleetToken | None, engine: Engine) -> Callable[[Callbacks], FleetLink]:
    """Return a function that makes the link of a proxy with a section `fleet`.

    Args:
        config: The configuration.
        token: The fleet's token; None: none of its own.
        engine: Dials brokers, and has Sluice's own credentials for them.
    """
    fleet = config.fleet
    assert fleet is not None, "the caller has looked"
    membership = Membership(fleet.namespace, fleet.name, config.proxy_id, fleet.lease)
    auth = own_auth(token, engine)
    return lambda callbacks: TopicLink(engine.dialer, membership, callbacks, auth)


def own_auth(token: FleetToken | None, engine: Engine) -> Auth | None:
    """Return the credentials that Sluice's own connections show brokers; None: none."""
    if token is not None:
        return token.auth
    verifier = engine.identity
    return None if verifier is None else (verifier.own.method, lambda: verifier.own.data)
