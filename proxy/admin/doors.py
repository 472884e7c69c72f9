"""Who may use the admin address: everybody, or who has a token, a client certificate, or both."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from proxy.admin.certificates import common_name, tls_context
from proxy.admin.pages import READING, Pages
from proxy.admin.refusal import refusal
from proxy.admin.refused import CallerRefusedError, Refused, Why
from proxy.admin.tokens import ANONYMOUS, Access, Tokens
from proxy.config.admin import AdminAccess

ALWAYS_OPEN = frozenset({"/healthz", "/readyz"})
"""Probes have neither tokens nor certificates."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Args:
        name: The token's, else the common name of the certificate, else `anonymous`.
        address: Whence.
        access: What he may do.
    """

    name: str
    address: str
    access: Access


CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)
"""`request[CALLER]` is there in every handler of the admin address."""


class Doors:
    """Every lock that is configured has to be opened: with tokens and client certificates, both are needed.

    Args:
        access: Which locks there are.
        refused: Told of those who are refused.
        name: The host of `admin`, by which it may be asked.

    Raises:
        ConfigError: If a file cannot be used, with file and key.
    """

    def __init__(self, access: AdminAccess, refused: Refused, name: str = "localhost") -> None:
        self._access = access
        self._refused = refused
        self._context, self._tokens = _keys(access)
        is_open = access.tokens is None and access.tls is None
        self._pages = Pages((name.lower(), *access.hosts) if is_open else None)
        self._needs_certificate = access.tls is not None and access.tls.client_ca is not None
        self._read_only = frozenset(access.tls.read_only if access.tls else ())
        self._write = access.tls.write if access.tls else None

    def context(self) -> ssl.SSLContext | None:
        """For the next connection; None for one without TLS."""
        return self._context

    def read_again(self) -> Callable[[], None]:
        """Read tokens and certificates again, which takes a while with many: in a thread.

        Returns:
            What has them count from then on, for the next request and the next connection.

        Raises:
            ConfigError: If a file cannot be used.
        """
        context, tokens = _keys(self._access)

        def take() -> None:
            self._context, self._tokens = context, tokens

        return take

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who may do what he asks for, and say who it is."""
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
        self._pages.check(request)
        keys: list[tuple[str, Access]] = []
        if self._tokens is not None:
            keys.append(_by_token(request, self._tokens))
        if self._needs_certificate:
            keys.append(self._by_certificate(request.get_extra_info("peercert")))
        name = keys[0][0] if keys else ANONYMOUS
        access: Access = "read" if any(each == "read" for _, each in keys) else "write"
        if access == "read" and request.method not in READING:
            raise CallerRefusedError(403, Why.READ_ONLY, f"{name} may only read: {request.method} needs write access")
        return Caller(name, address, access)

    def _by_certificate(self, certificate: Mapping[str, Any] | None) -> tuple[str, Access]:
        if not certificate:
            raise CallerRefusedError(
                401, Why.MISSING, "a client certificate is needed here (admin_access.tls.client_ca)"
            )
        name = common_name(certificate)
        if name is None:
            raise CallerRefusedError(
                401, Why.WRONG, "the client certificate must have one common name (CN) in its subject"
            )
        may_write = name not in self._read_only if self._write is None else name in self._write
        return name, "write" if may_write else "read"


def _keys(access: AdminAccess) -> tuple[ssl.SSLContext | None, Tokens | None]:
    context = tls_context(access.tls) if access.tls else None
    return context, Tokens(access.tokens) if access.tokens else None


def _by_token(request: web.Request, tokens: Tokens) -> tuple[str, Access]:
    said = request.headers.getall("Authorization", [])
    if not said:
        raise CallerRefusedError(401, Why.MISSING, "a token is needed here: Authorization: Bearer TOKEN")
    scheme, _, token = said[0].partition(" ")
    if len(said) > 1 or scheme.lower() != "bearer":
        raise CallerRefusedError(401, Why.WRONG, "write one header Authorization: Bearer TOKEN")
    holder = tokens.find(token.strip())
    if holder is None:
        raise CallerRefusedError(401, Why.WRONG, "this token is not known here")
    return holder.name, holder.access
