"""Values of authentication: credentials, evidence, identities. They are light, so every session may know them.

The libraries that verify take 11 MiB and are loaded only where Sluice verifies (`proxy.session.engine.verifier_of`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from proxy.block_rules import MOST_ROLE
from proxy.config.model import ConfigError
from proxy.files import FileReader, TokenFileError, read_token, warn_if_others_read


def is_role(name: object) -> bool:
    """Return whether a name can be a role: text in one line of at most MOST_ROLE characters."""
    return isinstance(name, str) and 0 < len(name) <= MOST_ROLE and name.isprintable()


def is_principal(name: object) -> bool:
    """Return whether a name can be a role for which Sluice speaks to brokers: one that is not blank.

    A blank `original_principal` is none to a broker. Where Sluice's role is missing in `proxyRoles`, the broker would
    then let the client do all that Sluice may.

    Source: org.apache.pulsar.broker.authorization.AuthorizationService (isValidOriginalPrincipal)
    """
    return is_role(name) and bool(str(name).strip())


class Credentials(NamedTuple):
    """The credentials in a CONNECT: auth_method_name and auth_data."""

    method: str
    data: bytes


def token_credentials(path: Path, key: str) -> Credentials:
    """Return the token in a file, as Sluice shows it to brokers; `key` is what names the file in the configuration.

    Raises:
        ConfigError: If the file cannot be read, or does not hold exactly one token.
    """
    try:
        token = read_token(path)
    except TokenFileError as error:
        raise ConfigError([f"{key}: {error}"]) from None
    warn_if_others_read(path, key)
    return Credentials("token", token.encode())


class Evidence(NamedTuple):
    """The evidence that a client shows of its role.

    Args:
        shown: In its CONNECT.
        certificate_name: The common name of a certificate that the listener has verified; None without one.
        address: Where the client is, as limits count it.
    """

    shown: Credentials
    certificate_name: str | None
    address: str


@dataclass(frozen=True, slots=True)
class Identity:
    """A client that has proved who it is.

    Args:
        role: Its role.
        method: The method that proved it: `token`, `basic` or `tls`.
        expires_at: Until when, in seconds since 1970; None: as long as it is connected.
    """

    role: str
    method: str
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class NotProved:
    """The verdict on evidence that proves no role.

    Args:
        reason: Why, for the client and the operator.
        is_passing: The evidence was not even checked; the client may try again.
    """

    reason: str
    is_passing: bool = False


Decided = Callable[[Identity | NotProved], None]


class Verifier(Protocol):
    """Verifies clients: `authenticator.ClientAuthenticator`."""

    now: Callable[[], float]
    """Seconds since 1970."""
    forwards: bool
    """Whether brokers also get the clients' credentials."""

    @property
    def own(self) -> Credentials:
        """The credentials that Sluice shows brokers now."""

    def verify(self, evidence: Evidence, decided: Decided) -> None:
        """Call `decided`, now or later, with the client's identity, or the reason why it is not proved."""

    def verify_token(self, token: bytes, address: str, decided: Decided) -> None:
        """Call `decided`, now or later, with whose token this is, or why it proves nothing."""

    def readers(self) -> tuple[FileReader, ...]:
        """Return the readers of the files; new content applies to clients that connect afterwards."""
