"""The files of certificates, keys and tokens, which are read again when they change."""

import structlog

from proxy.admin.auth import Authenticator
from proxy.admin.forwarding.broker import BrokerAdmin
from proxy.files import FileReader
from proxy.fleet.configured_link import FleetToken
from proxy.identity.evidence import Verifier
from proxy.tls.certificates import Certificates, Expiry, ExpiryLog


class CredentialFiles:
    """The files of certificates, keys and tokens that the parts of a proxy read, and the certificates in force.

    Args:
        tls: The TLS contexts for clients and brokers.
        authenticator: Authenticates callers of the admin address.
        broker_admin: The client of the brokers' admin address, if requests are forwarded there.
        identity: Verifies clients; None where brokers do.
        fleet_token: The token of the fleet's own connections; None without one.

    Attributes:
        expiry_log: Warns of certificates that expire soon.
    """

    def __init__(
        self,
        tls: Certificates,
        authenticator: Authenticator,
        broker_admin: BrokerAdmin | None,
        identity: Verifier | None,
        fleet_token: FleetToken | None = None,
    ) -> None:
        self._tls = tls
        self._authenticator = authenticator
        self._broker_admin = broker_admin
        self._identity = identity
        self._fleet_token = fleet_token
        self._in_force = frozenset(self.expiries())
        self.expiry_log = ExpiryLog(self.expiries)

    def expiries(self) -> tuple[Expiry, ...]:
        """Return the expiries of the certificates in force."""
        of_forwarding = self._broker_admin.expiries() if self._broker_admin else ()
        return *self._tls.expiries(), *self._authenticator.expiries(), *of_forwarding

    def readers(self) -> list[FileReader]:
        """Return the readers of all files."""
        owners = (self._tls, self._authenticator, self._identity, self._fleet_token, self._broker_admin)
        return [reader for owner in owners if owner is not None for reader in owner.readers()]

    def on_read(self) -> None:
        """Log the certificates that have come into force, now that the files were read again."""
        before, self._in_force = self._in_force, frozenset(self.expiries())
        for expiry in self.expiries():
            if expiry not in before:
                structlog.get_logger().info("certificate taken for new connections", certificate=str(expiry))
        self.expiry_log.report()
