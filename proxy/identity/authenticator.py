"""Verifies what clients show, and says what Sluice shows brokers, in mode `terminate`; files may change any time."""

import base64
import binascii
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import unquote_to_bytes

from proxy.config.model import ConfigError, take_all
from proxy.config.sections import Authentication, path_in
from proxy.files import MOST_PEM, FileReader, read_file, unread, warn_if_others_read, warn_of_passed_over
from proxy.identity.checks import Checks, CheckWorker, OneThread
from proxy.identity.evidence import Credentials, Decided, Evidence, Identity, NotProved, is_principal, token_credentials
from proxy.identity.passwords import PasswordFileError, Passwords, PasswordVerdict, read_htpasswd
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
MOST_KEYS_AT_ONCE = 4
"""Keys that a token is tried with in the loop: 0.2 ms with RSA, 2 ms with P-521. With more, a thread does it."""
_MOST_HTPASSWD = 16 * 1024**2
_KEY = "authentication"
_READERS: dict[str, Callable[[bytes, Callable[[str], None]], tuple[VerifyingKey, ...]]] = {
    "secret_key": lambda content, _: secret_keys(content),
    "public_key": lambda content, _: public_keys(content),
    "jwks": jwks_keys,
}
"""Readers of keys; each calls its second argument for a key that is passed over."""


class ClientAuthenticator:
    """Verifies clients of one process.

    Args:
        section: The configuration; its mode is `terminate`.
        now: Seconds since 1970.
        clock: Monotonic nanoseconds.
        worker: Makes the worker that checks passwords, and the one that tries tokens with many keys.
        shows_certificate: Whether brokers see a certificate of Sluice's, which are its credentials without a token.
        in_slices: Makes a call for an address, which verifies on the loop, in one of the next turns; None: at once.

    Raises:
        ConfigError: If a file cannot be used, with every problem.
    """

    def __init__(
        self,
        section: Authentication,
        now: Callable[[], float] = time.time,
        clock: Callable[[], int] = time.monotonic_ns,
        worker: Callable[[str], CheckWorker] = OneThread,
        *,
        shows_certificate: bool = False,
        in_slices: Callable[[Callable[[], None], str], None] | None = None,
    ) -> None:
        self._section = section
        self._in_slices = in_slices or _at_once
        self._nothing_shown = Credentials("tls" if shows_certificate else "", b"")
        self.now = now
        self._proved: OrderedDict[bytes, Identity] = OrderedDict()
        self._keys: dict[str, tuple[VerifyingKey, ...]] = {}
        """The keys in force, by the key of the configuration that names their file."""
        self._tokens: TokenVerifier | None = None
        self._own: Credentials | None = None
        self._password_checks = Checks(worker("passwords"), clock)
        self._token_checks = Checks(worker("tokens"), clock)
        self._passwords = Passwords({}, self._password_checks, clock)
        take_all(self.readers())
        self._methods = [name for name in ("token", "basic", "tls") if getattr(section, name)]
        self.forwards = section.forward_credentials
        """Whether brokers also get the clients' credentials."""

    @property
    def own(self) -> Credentials:
        """The credentials that Sluice shows brokers now."""
        return self._own or self._nothing_shown

    @property
    def waiting(self) -> int:
        """Passwords and tokens that wait to be checked."""
        return len(self._password_checks) + len(self._token_checks)

    def readers(self) -> tuple[FileReader, ...]:
        """Return the readers of the files; new content applies to clients that connect afterwards."""
        token, basic, own = self._section.token, self._section.basic, self._section.broker.token_file
        sources = [(name, getattr(token, name)) for name in _READERS] if token else []
        of_tokens = (
            FileReader(f"{_KEY}.token.{name}", partial(self._read_keys, name, at)) for name, at in sources if at
        )
        of_users = (FileReader(f"{_KEY}.basic.htpasswd", partial(self._read_users, basic.htpasswd)),) if basic else ()
        of_own = (FileReader(f"{_KEY}.broker.token_file", partial(self._read_own, own)),) if own else ()
        return *of_tokens, *of_users, *of_own

    def _read_keys(self, name: str, source: str) -> Callable[[], None]:
        keys, section = _keys(name, source), self._section.token
        assert section is not None, "readers() needs the section"

        def take() -> None:
            self._keys[name] = keys
            every = [key for name in _READERS for key in self._keys.get(name, ())]
            self._tokens = TokenVerifier(every, section.token_claim, section.audience, section.allowed_clock_skew)
            self._proved.clear()

        return take

    def _read_users(self, path: Path) -> Callable[[], object]:
        users = _users(path)

        def take() -> object:
            return self._passwords.replace_users(users)

        return take

    def _read_own(self, path: Path) -> Callable[[], None]:
        own = token_credentials(path, f"{_KEY}.broker.token_file")

        def take() -> None:
            self._own = own

        return take

    def verify(self, evidence: Evidence, decided: Decided) -> None:
        """Call `decided`, now or later, with the client's identity, or the reason why it is not proved."""
        shown = evidence.shown
        if shown.method not in self._methods:
            method = f"auth method {shown.method[:50]!r}" if shown.method else "no authentication"
            decided(NotProved(f"the client shows {method}; this proxy takes {', '.join(self._methods)}"))
        elif shown.method == "token":
            self.verify_token(shown.data, evidence.address, decided)
        elif shown.method == "basic":
            self._by_password(evidence, decided)
        else:
            decided(_by_certificate(evidence.certificate_name))

    def verify_token(self, token: bytes, address: str, decided: Decided) -> None:
        """Call `decided` with whose token this is, or why it proves nothing: later, if many keys have to be tried.

        Args:
            token: As the client sent it.
            address: Where the client is, as limits count it.
            decided: Called once.
        """
        tokens = self._tokens
        if tokens is None or self._proved_before(token):
            decided(self.by_token(token))
            return
        if tokens.keys_to_try(token) <= MOST_KEYS_AT_ONCE:
            self._in_slices(lambda: decided(self.by_token(token)), address)
        else:
            self._verify_in_thread(tokens, token, address, decided)

    def _verify_in_thread(self, tokens: TokenVerifier, token: bytes, address: str, decided: Decided) -> None:
        def check() -> Identity | NotProved:
            try:
                return tokens.verify(token, self.now())
            except RefusedTokenError as error:
                return NotProved(str(error))

        def checked(result: Identity | NotProved | None) -> None:
            if tokens is not self._tokens:  # other keys have come into force since
                self.verify_token(token, address, decided)
            elif isinstance(result, Identity):
                self._remember(token, result)
                decided(result)
            else:
                self._token_checks.note_wrong(address)
                decided(result or NotProved("the token cannot be read"))

        digest, has_room = _digest(token), self._token_checks.may_try(address)
        if not has_room or not self._token_checks.begin(digest, address, check, checked):
            reason = "too many tokens without the id of their key (kid) wait to be checked, or were wrong: try again"
            decided(NotProved(reason, is_passing=True))

    def by_token(self, token: bytes) -> Identity | NotProved:
        """Return the identity that a token proves, or why it proves none now."""
        proved = self._proved_before(token)
        if proved is not None:
            return proved
        if self._tokens is None:
            return NotProved("this proxy takes no tokens")
        try:
            identity = self._tokens.verify(token, self.now())
        except RefusedTokenError as error:
            return NotProved(str(error))
        self._remember(token, identity)
        return identity

    def _proved_before(self, token: bytes) -> Identity | None:
        identity = self._proved.get(_digest(token))
        is_valid = identity is not None and (identity.expires_at is None or identity.expires_at > self.now())
        return identity if is_valid else None

    def _remember(self, token: bytes, identity: Identity) -> None:
        if len(self._proved) >= MOST_PROVED:
            self._proved.popitem(last=False)
        self._proved[_digest(token)] = identity

    def _by_password(self, evidence: Evidence, decided: Decided) -> None:
        name, _, password = evidence.shown.data.partition(b":")
        user = name.decode(errors="surrogateescape")

        def on_verdict(verdict: PasswordVerdict) -> None:
            if verdict is PasswordVerdict.RIGHT:
                decided(Identity(user, "basic"))
            elif verdict is PasswordVerdict.WRONG:
                decided(NotProved("the user is not known, or the password is wrong"))
            else:
                decided(NotProved("too many passwords wait to be checked, or were wrong: try again", is_passing=True))

        self._passwords.check(user, password, evidence.address, on_verdict)


def _at_once(call: Callable[[], None], _address: str) -> None:
    call()


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _by_certificate(name: str | None) -> Identity | NotProved:
    if name is None:
        return NotProved("the client shows auth method 'tls', and no certificate that this listener has verified")
    if not is_principal(name):
        return NotProved("the common name of the client's certificate is no role")
    return Identity(name, "tls")


def _keys(name: str, source: str) -> tuple[VerifyingKey, ...]:
    path = path_in(source)
    key = f"{_KEY}.token.{name}"
    unusable: list[str] = []
    try:
        keys = _READERS[name](_data_in(source) if path is None else read_file(path, MOST_PEM), unusable.append)
    except OSError as error:
        raise ConfigError([f"{key}: {path}: {unread(error)}"]) from None
    except KeyFileError as error:
        raise ConfigError([f"{key}: {path or 'data:'}: {error}"]) from None
    warn_of_passed_over("a key is passed over: no token is verified by it", key, str(path or "data:"), unusable)
    if path is not None and any(isinstance(each.key, bytes) for each in keys):
        warn_if_others_read(path, key)
    return keys


def _users(path: Path) -> dict[str, str]:
    key = f"{_KEY}.basic.htpasswd"
    unusable: list[str] = []
    try:
        users = read_htpasswd(read_file(path, _MOST_HTPASSWD), unusable.append)
    except OSError as error:
        raise ConfigError([f"{key}: {path}: {unread(error)}"]) from None
    except PasswordFileError as error:
        raise ConfigError([f"{key}: {path}: {problem}" for problem in error.problems]) from None
    warn_of_passed_over("a line is passed over: its user is not served by it", key, str(path), unusable)
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
        raise KeyFileError("the text after data:;base64, is not base64") from None
