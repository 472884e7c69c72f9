"""Authentication of callers of the admin address: by nothing, tokens, client certificates, or both.

The tokens are in a file: name → {access: read|write, token: …, tenants: […]}; without tenants a token is for all.
The names of certificates are their common names.

    request ──▶ BrowserGuard ──▶ token, certificate ──▶ access ──▶ tenants (tenant_scope.py) ──▶ handler, with a Caller
"""

import hashlib
import hmac
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from aiohttp import web
from aiohttp.typedefs import Handler

from protocol.topic_name import is_entity
from proxy.admin.browser_guard import READING, BrowserGuard
from proxy.admin.refusals import CallerRefusedError, RefusalCause, RefusalLog, refusal
from proxy.admin.tenant_scope import ALWAYS_OPEN, why_outside
from proxy.config.model import ConfigError
from proxy.config.sections import AdminAccess
from proxy.config.yaml_reader import YamlError, YamlProblem, lines_of, parse_yaml
from proxy.files import FileReader, read_file, unread, warn_if_others_read, warn_of_passed_over
from proxy.policies.keys import ANONYMOUS
from proxy.tls.certificates import Expiry, admin_tls

LONGEST_NAME = 100
SHORTEST_TOKEN = 16
LONGEST_TOKEN = 512
MOST_TOKENS = 1000
"""Most tokens: each request is compared with all tokens."""
MOST_TENANTS = 100
"""Tenants of one token."""
_MOST_BYTES = 1024 * 1024
"""Most bytes of the file; MOST_TOKENS holders, each with the longest name and token, need half as many."""
_TOKENS_KEY = "admin_access.tokens"

Access = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a token, and what the token opens."""

    name: str
    access: Access
    digest: bytes
    tenants: frozenset[str] | None = None
    """The tenants that the token is for; None: it is for all tenants, and for shared paths."""


class Tokens:
    """The tokens and their holders. Only digests are kept.

    Args:
        path: The file of the tokens.

    Raises:
        ConfigError: If the file cannot be used, with every problem. No problem and no warning shows a token.
    """

    def __init__(self, path: Path) -> None:
        self._holders = read_tokens(path)

    def find(self, token: str) -> Holder | None:
        """Return the holder of `token`, in a time that does not depend on it: all digests are always compared."""
        digest, match = _digest(token), None
        for holder in self._holders:
            if hmac.compare_digest(holder.digest, digest):
                match = holder
        return match


def read_tokens(path: Path) -> tuple[Holder, ...]:
    """Return the token holders that a file names, at most MOST_TOKENS; others are passed over with a warning each.

    Raises:
        ConfigError: If no holder can be served, with every problem, each naming key, file, line, holder and remedy.
    """
    text = _text(path)
    values, mistakes = _parsed(path, text)
    if not isinstance(values, dict) or not (values or mistakes):
        raise _refused(path, " names no holder; write NAME: {access: read, token: TOKEN}, or access: write for changes")
    unusable = {each.key[0]: f"{each.line}: {each.text}" for each in mistakes}
    wrong = [(name, problem) for name, problem in _problems(values) if name not in unusable]
    usable = [name for name in values if name not in {*unusable, *dict(wrong)}]
    surplus = f"comes after {MOST_TOKENS} holders, the most that are served"
    wrong += [(name, surplus) for name in usable[MOST_TOKENS:]]
    lines = lines_of(text, {(name,) for name, _ in wrong}) if wrong else {}
    reasons = [*unusable.values()]
    reasons += [f"{lines.get((name,), 1)}: {name[:LONGEST_NAME]!r}: {problem}" for name, problem in wrong]
    served = {name: entry for name, entry in values.items() if name not in {*unusable, *dict(wrong)}}
    if not served:
        raise _refused(path, *reasons)
    warn_of_passed_over("a holder is passed over: its token opens nothing", _TOKENS_KEY, str(path), reasons)
    return tuple(
        Holder(
            name, entry["access"], _digest(entry["token"]), frozenset(entry["tenants"]) if "tenants" in entry else None
        )
        for name, entry in served.items()
    )


def _refused(path: Path, *problems: str) -> ConfigError:
    return ConfigError([f"{_TOKENS_KEY}: {path}:{problem}" for problem in problems])


def _text(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        text = read_file(path, _MOST_BYTES)
    except OSError as error:
        raise _refused(path, f" {unread(error)}") from None
    if mode & stat.S_IWOTH:
        raise _refused(path, " others can write it, and so give themselves access: chmod o-w")
    warn_if_others_read(path, _TOKENS_KEY)
    return text


def _parsed(path: Path, text: bytes) -> tuple[Any, tuple[YamlProblem, ...]]:
    """Return the content, and the mistakes that are each of one holder; without keys and values: those are secrets.

    Raises:
        ConfigError: If the mistakes are not each of one holder.
    """
    try:
        return parse_yaml(text), ()
    except YamlError as error:
        if not error.is_within_its_keys:  # a holder that has lost its `tenants` would be an operator
            raise _refused(path, *(f"{each.line}: {each.text}" for each in error.problems)) from None
        return error.values, error.problems


def _problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the mistakes, each with its holder. A token of two holders is of neither: their rights may differ."""
    holders: dict[str, list[str]] = {}
    for name, entry in values.items():
        yield from ((name, problem) for problem in _problems_of(name, entry))
        token = entry.get("token") if isinstance(entry, dict) else None
        if isinstance(token, str):
            holders.setdefault(token, []).append(name)
    for names in holders.values():
        for name in names if len(names) > 1 else ():
            other = next(each for each in names if each != name)
            yield name, f"token: {other[:LONGEST_NAME]!r} has the same token; give each holder its own"


def _problems_of(name: str, entry: Any) -> Iterator[str]:
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        yield f"write the name as text in one line of 1 to {LONGEST_NAME} characters"
    if name == ANONYMOUS:
        yield "is the name of callers without a token; choose another"
    if not isinstance(entry, dict) or set(entry) - {"tenants"} != {"access", "token"}:
        yield (
            "write {access: read, token: TOKEN}, these two keys and no other, but tenants: [TENANT, …] if it is for "
            "some only"
        )
        return
    if entry["access"] not in get_args(Access):
        yield f"access: {str(entry['access'])[:50]!r}: is neither read nor write"
    if not _is_token(entry["token"]):
        yield (
            f"token: write text of {SHORTEST_TOKEN} to {LONGEST_TOKEN} ASCII characters without blanks; "
            "`openssl rand -hex 32` makes one"
        )
    tenants = entry.get("tenants", [""])
    is_list = isinstance(tenants, list) and 1 <= len(tenants) <= MOST_TENANTS
    if "tenants" in entry and not (is_list and all(isinstance(name, str) and is_entity(name) for name in tenants)):
        yield f"tenants: write a list of 1 to {MOST_TENANTS} tenants, as [acme]; without this key the token is for all"


def _is_token(token: Any) -> bool:
    if not isinstance(token, str) or not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN:
        return False
    return token.isascii() and token.isprintable() and " " not in token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def common_name(certificate: Mapping[str, Any]) -> str | None:
    """Return the one common name of a certificate as `getpeercert` gives it; None if there is not exactly one."""
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if len(names) != 1 or not 1 <= len(names[0]) <= LONGEST_NAME or not names[0].isprintable():
        return None
    return str(names[0])


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Args:
        name: The name of the token's holder, else the common name of the certificate, else `anonymous`.
        address: The caller's address.
        access: The caller's access.
        tenants: The tenants that the caller's token is for; None: all.
    """

    name: str
    address: str
    access: Access
    tenants: frozenset[str] | None = None


CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)
"""`request[CALLER]` is set in every handler of the admin address."""


class Authenticator:
    """Authenticates callers by every lock that is configured: with tokens and client certificates, both are needed.

    Args:
        access: The configured means.
        refused: Counts and logs refused callers.
        name: The host of `admin`, by which this address may be named.

    Raises:
        ConfigError: If a file cannot be used, with file and key.
    """

    def __init__(self, access: AdminAccess, refused: RefusalLog, name: str = "localhost") -> None:
        self._access = access
        self._refused = refused
        self._tls = admin_tls(access.tls) if access.tls else None
        self._tokens = Tokens(access.tokens) if access.tokens else None
        is_open = access.tokens is None and access.tls is None
        self._browser_guard = BrowserGuard((name.lower(), *access.hosts) if is_open else None)
        self._needs_certificate = access.tls is not None and access.tls.client_ca is not None
        self._read_only = frozenset(access.tls.read_only if access.tls else ())
        self._write = access.tls.write if access.tls else None

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context for the next connection; None for one without TLS."""
        return self._tls.context if self._tls else None

    def expiries(self) -> tuple[Expiry, ...]:
        """Return when the certificates in force expire, one for each file."""
        return self._tls.expiries if self._tls else ()

    def readers(self) -> tuple[FileReader, ...]:
        """Return what reads certificates and tokens again, for the next connection and the next request."""
        of_tls = self._tls.readers() if self._tls else ()
        of_tokens = (FileReader("admin_access.tokens", self._read_tokens),) if self._access.tokens else ()
        return *of_tls, *of_tokens

    def _read_tokens(self) -> Callable[[], None]:
        assert self._access.tokens is not None, "readers() has it then only"
        tokens = Tokens(self._access.tokens)

        def take() -> None:
            self._tokens = tokens

        return take

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request pass if its caller may send it, and note the caller."""
        try:
            request[CALLER] = self._caller(request)
        except CallerRefusedError as error:
            self._refused.count(error.why, str(error), request.remote or "?")
            answer = refusal(error.status, str(error))
            if error.status == web.HTTPUnauthorized.status_code:
                answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        return await handler(request)

    def _caller(self, request: web.Request) -> Caller:
        address = request.remote or "?"
        resource = request.match_info.route.resource
        if resource is not None and resource.canonical in ALWAYS_OPEN:
            return Caller(ANONYMOUS, address, "read")
        self._browser_guard.check(request)
        keys: list[tuple[str, Access]] = []
        tenants = None
        if self._tokens is not None:
            holder = _by_token(request, self._tokens)
            keys.append((holder.name, holder.access))
            tenants = holder.tenants
        if self._needs_certificate:
            keys.append(self._by_certificate(request.get_extra_info("peercert")))
        name = keys[0][0] if keys else ANONYMOUS
        access: Access = "read" if any(each == "read" for _, each in keys) else "write"
        if access == "read" and request.method not in READING:
            raise CallerRefusedError(
                403, RefusalCause.READ_ONLY, f"{name} may only read: {request.method} needs write access"
            )
        outside = None if tenants is None else why_outside(request, tenants)
        if outside is not None:
            raise CallerRefusedError(403, RefusalCause.TENANT, outside)
        return Caller(name, address, access, tenants)

    def _by_certificate(self, certificate: Mapping[str, Any] | None) -> tuple[str, Access]:
        if not certificate:
            raise CallerRefusedError(
                401, RefusalCause.MISSING, "a client certificate is needed here (admin_access.tls.client_ca)"
            )
        name = common_name(certificate)
        if name is None:
            raise CallerRefusedError(
                401, RefusalCause.WRONG, "the client certificate must have one common name (CN) in its subject"
            )
        may_write = name not in self._read_only if self._write is None else name in self._write
        return name, "write" if may_write else "read"


def _by_token(request: web.Request, tokens: Tokens) -> Holder:
    headers = request.headers.getall("Authorization", [])
    if not headers:
        raise CallerRefusedError(401, RefusalCause.MISSING, "a token is needed here: Authorization: Bearer TOKEN")
    scheme, _, token = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer":
        raise CallerRefusedError(401, RefusalCause.WRONG, "write one header Authorization: Bearer TOKEN")
    holder = tokens.find(token.strip())
    if holder is None:
        raise CallerRefusedError(401, RefusalCause.WRONG, "this token is not known here")
    return holder
