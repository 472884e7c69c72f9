"""Verifies what clients show, and says what Sluice shows brokers, in mode `terminate`; files may change any time."""

import base64
import binascii
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from proxy.config.model import ConfigError
from proxy.config.sections import Authentication, TokenAuthentication, path_in
from proxy.files import MOST_PEM, read_file, warn_if_others_read
from proxy.identity.evidence import Credentials, Decided, Evidence, Identity, NotProved, is_principal, token_credentials
from proxy.identity.passwords import (
    OneThread,
    PasswordFileError,
    Passwords,
    PasswordVerdict,
    PasswordWorker,
    read_htpasswd,
)
from proxy.identity.tokens import (
    KeyFileError,
    RefusedTokenError,
    TokenVerifier,
    VerifyingKey,
    jwks_keys,
    public_keys,
    secret_keys,
)

MOST_PROVED = 10_000
"""Verified tokens that are remembered: to look one up takes 1 % of the time of a signature."""
_MOST_HTPASSWD = 16 * 1024**2
_KEY = "authentication"
_READERS: dict[str, Callable[[bytes], tuple[VerifyingKey, ...]]] = {
    "secret_key": secret_keys,
    "public_key": public_keys,
    "jwks": jwks_keys,
}


@dataclass(frozen=True, slots=True)
class _Read:
    """The content of the files."""

    tokens: TokenVerifier | None
    users: dict[str, str] | None
    own: Credentials | None


class ClientAuthenticator:
    """Verifies clients of one process.

    Args:
        section: The configuration; its mode is `terminate`.
        now: Seconds since 1970.
        clock: Monotonic nanoseconds.
        worker: Checks passwords.
        shows_certificate: Whether brokers see a certificate of Sluice's; it is what Sluice shows where it has no token.

    Raises:
        ConfigError: If a file cannot be used, with every problem.
    """

    def __init__(
        self,
        section: Authentication,
        now: Callable[[], float] = time.time,
        clock: Callable[[], int] = time.monotonic_ns,
        worker: PasswordWorker | None = None,
        *,
        shows_certificate: bool = False,
    ) -> None:
        self._section = section
        self._nothing_shown = Credentials("tls" if shows_certificate else "", b"")
        self.now = now
        self._proved: OrderedDict[bytes, Identity] = OrderedDict()
        self._read = found = _read_all(section)
        self._passwords = Passwords(found.users or {}, worker or OneThread(), clock)
        self._methods = [name for name in ("token", "basic", "tls") if getattr(section, name)]
        self.forwards = section.forward_credentials
        """Whether brokers get what clients showed, too."""

    @property
    def own(self) -> Credentials:
        """The credentials that Sluice shows brokers now."""
        return self._read.own or self._nothing_shown

    @property
    def waiting(self) -> int:
        """Passwords that wait to be checked."""
        return self._passwords.waiting

    def read_again(self) -> Callable[[], None]:
        """Read all files again; to be called in a thread.

        Returns:
            The function that puts them in force for whoever connects from then on.

        Raises:
            ConfigError: If a file cannot be used.
        """
        found = _read_all(self._section)

        def take() -> None:
            self._read = found
            self._proved.clear()
            self._passwords.users = found.users or {}

        return take

    def verify(self, evidence: Evidence, decided: Decided) -> None:
        """Call `decided`, now or later, with who this is, or why nobody knows."""
        shown = evidence.shown
        if shown.method not in self._methods:
            said = f"auth method {shown.method[:50]!r}" if shown.method else "no authentication"
            decided(NotProved(f"the client shows {said}; this proxy takes {', '.join(self._methods)}"))
        elif shown.method == "token":
            decided(self.by_token(shown.data))
        elif shown.method == "basic":
            self._by_password(evidence, decided)
        else:
            decided(_by_certificate(evidence.certificate_name))

    def by_token(self, token: bytes) -> Identity | NotProved:
        """Return whose token this is, or why it proves nothing now."""
        now, digest = self.now(), hashlib.sha256(token).digest()
        known = self._proved.get(digest)
        if known is not None and (known.expires_at is None or known.expires_at > now):
            return known
        if self._read.tokens is None:
            return NotProved("this proxy takes no tokens")
        try:
            identity = self._read.tokens.verify(token, now)
        except RefusedTokenError as error:
            return NotProved(str(error))
        if len(self._proved) >= MOST_PROVED:
            self._proved.popitem(last=False)
        self._proved[digest] = identity
        return identity

    def _by_password(self, evidence: Evidence, decided: Decided) -> None:
        name, _, password = evidence.shown.data.partition(b":")
        user = name.decode(errors="surrogateescape")

        def told(verdict: PasswordVerdict) -> None:
            if verdict is PasswordVerdict.RIGHT:
                decided(Identity(user, "basic"))
            elif verdict is PasswordVerdict.WRONG:
                decided(NotProved("the user is not known, or the password is wrong"))
            else:
                decided(NotProved("too many passwords wait to be checked, or were wrong: try again", is_passing=True))

        self._passwords.check(user, password, evidence.address, told)


def _by_certificate(name: str | None) -> Identity | NotProved:
    if name is None:
        return NotProved("the client shows auth method 'tls', and no certificate that this listener has verified")
    if not is_principal(name):
        return NotProved("the common name of the client's certificate is no role")
    return Identity(name, "tls")


def _read_all(section: Authentication) -> _Read:
    problems: list[str] = []
    tokens, users, own = None, None, None
    try:
        tokens = _verifier(section.token) if section.token else None
    except ConfigError as error:
        problems += error.problems
    try:
        users = _users(section.basic.htpasswd) if section.basic else None
    except ConfigError as error:
        problems += error.problems
    try:
        file = section.broker.token_file
        own = token_credentials(file, f"{_KEY}.broker.token_file") if file else None
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return _Read(tokens, users, own)


def _verifier(section: TokenAuthentication) -> TokenVerifier:
    """Return a verifier of tokens that takes those which any of the given keys has signed."""
    keys: list[VerifyingKey] = []
    problems: list[str] = []
    for name in _READERS:
        source = getattr(section, name)
        try:
            keys += _keys(name, source) if source else []
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return TokenVerifier(keys, section.token_claim, section.audience)


def _keys(name: str, source: str) -> tuple[VerifyingKey, ...]:
    path = path_in(source)
    key = f"{_KEY}.token.{name}"
    try:
        keys = _READERS[name](_data_in(source) if path is None else read_file(path, MOST_PEM))
    except OSError as error:
        raise ConfigError([f"{key}: {path}: cannot be read: {error.strerror}"]) from None
    except KeyFileError as error:
        raise ConfigError([f"{key}: {path or 'data:'}: {error}"]) from None
    if path is not None and any(isinstance(each.key, bytes) for each in keys):
        warn_if_others_read(path, key)
    return keys


def _users(path: Path) -> dict[str, str]:
    key = f"{_KEY}.basic.htpasswd"
    try:
        users = read_htpasswd(read_file(path, _MOST_HTPASSWD))
    except OSError as error:
        raise ConfigError([f"{key}: {path}: cannot be read: {error.strerror}"]) from None
    except PasswordFileError as error:
        raise ConfigError([f"{key}: {path}: {problem}" for problem in error.problems]) from None
    warn_if_others_read(path, key)
    return users


def _data_in(source: str) -> bytes:
    """Return the bytes of a `data:` URL.

    Source: https://www.rfc-editor.org/rfc/rfc2397
    """
    head, comma, text = source.removeprefix("data:").partition(",")
    content = unquote_to_bytes(text)
    if not comma:
        raise KeyFileError("write data:;base64,KEY")
    if not head.endswith(";base64"):
        return content
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error:
        raise KeyFileError("what stands behind data:;base64, is not base64") from None
