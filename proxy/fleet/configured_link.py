"""The link to a fleet that a configuration describes, and the credentials that it shows brokers."""

from collections.abc import Callable

from proxy.config.model import Config
from proxy.config.sections import Fleet
from proxy.files import read_token
from proxy.fleet.link import Callbacks, FleetLink
from proxy.fleet.pulsar_connection import Auth
from proxy.fleet.topic_link import Membership, TopicLink
from proxy.identity.evidence import token_credentials
from proxy.session.engine import Engine


def link_of(config: Config, engine: Engine) -> Callable[[Callbacks], FleetLink]:
    """Return a function that makes the link of a proxy with a section `fleet`.

    Args:
        config: The configuration.
        engine: Dials brokers, and has Sluice's own credentials for them.

    Raises:
        ConfigError: If a file that the section names cannot be used.
    """
    fleet = config.fleet
    assert fleet is not None, "the caller has looked"
    membership = Membership(fleet.namespace, fleet.name, config.proxy_id, fleet.lease)
    auth = own_auth(fleet, engine)
    return lambda callbacks: TopicLink(engine.dialer, membership, callbacks, auth)


def own_auth(fleet: Fleet | None, engine: Engine) -> Auth | None:
    """Return the credentials that Sluice's own connections show brokers; None: none.

    Raises:
        ConfigError: If `fleet.token_file` cannot be used.
    """
    file, verifier = None if fleet is None else fleet.token_file, engine.identity
    if file is not None:
        return token_credentials(file, "fleet.token_file").method, lambda: read_token(file).encode()
    return None if verifier is None else (verifier.own.method, lambda: verifier.own.data)
