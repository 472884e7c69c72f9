"""The identity of clients: what a client shows in CONNECT is verified, and becomes a role that is proved.

The libraries that verify take 11 MiB and are loaded only where Sluice does (`verifier_of`).
"""

from proxy.config.model import Config
from proxy.identity.evidence import Verifier


def verifier_of(config: Config) -> Verifier | None:
    """Return what verifies clients; None where brokers do.

    Raises:
        ConfigError: If a file cannot be used.
    """
    if not config.authentication.is_terminated:
        return None
    from proxy.identity.authenticator import ClientAuthenticator  # noqa: PLC0415 - see above

    return ClientAuthenticator(config.authentication, shows_certificate=config.broker_tls.certificate is not None)
