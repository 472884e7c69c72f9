"""Who may use the admin address: everybody, or who has a token, a client certificate, or both."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from proxy.admin.certificates import common_name, tls_context
from proxy.admin.refusal import refusal
from proxy.admin.refused import Refused, Why
from proxy.admin.tokens import ANONYMOUS, Access, Tokens
from proxy.config.admin import AdminAccess

ALWAYS_OPEN = frozenset({"/healthz", "/readyz"})
"""Probes have neither tokens nor certificates."""
_READING = frozenset({"GET", "HEAD"})

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


class RefusedError(Exception):
    """A caller may not do what he asks for.

    Args:
        status: Of HTTP.
        why: What is counted.
        reason: What he is told.
    """

    def __init__(self, status: int, why: Why, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.why = why


class Doors:
    """Every lock that is configured has to be opened: with tokens and client certificates, both are needed.

    Args:
        access: Which locks there are.
        refused: Told of those who are refused.

    Raises:
        ConfigError: If a file cannot be used, with file and key.
    """

    def __init__(self, access: AdminAccess, refused: Refused) -> None:
        self._tls = access.tls
        self._refused = refused
        self._tokens = Tokens(access.tokens) if access.tokens else None
        self._context = tls_context(access.tls) if access.tls else None
        self._needs_certificate = access.tls is not None and access.tls.client_ca is not None
        self._read_only = frozenset(access.tls.read_only if access.tls else ())

    def context(self) -> ssl.SSLContext | None:
        """For the next connection; None for one without TLS."""
        return self._context

    def reload(self) -> None:
        """Read tokens and certificates again, for the next request and the next connection.

        Raises:
            ConfigError: If a file cannot be used. Then nothing changes.
        """
        context = tls_context(self._tls) if self._tls else None
        if self._tokens is not None:
            self._tokens.reload()
        self._context = context

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who may do what he asks for, and say who it is."""
        try:
            request[CALLER] = self._caller(request)
        except RefusedError as error:
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
        keys: list[tuple[str, Access]] = []
        if self._tokens is not None:
            keys.append(_by_token(request, self._tokens))
        if self._needs_certificate:
            keys.append(self._by_certificate(request.get_extra_info("peercert")))
        name = keys[0][0] if keys else ANONYMOUS
        access: Access = "read" if any(each == "read" for _, each in keys) else "write"
        if access == "read" and request.method not in _READING:
            raise RefusedError(403, Why.READ_ONLY, f"{name} may only read: {request.method} needs write access")
        return Caller(name, address, access)

    def _by_certificate(self, certificate: Mapping[str, Any] | None) -> tuple[str, Access]:
        if not certificate:
            raise RefusedError(401, Why.MISSING, "a client certificate is needed here (admin_access.tls.client_ca)")
        name = common_name(certificate)
        if name is None:
            raise RefusedError(401, Why.WRONG, "the client certificate must have one common name (CN) in its subject")
        return name, "read" if name in self._read_only else "write"


def _by_token(request: web.Request, tokens: Tokens) -> tuple[str, Access]:
    said = request.headers.getall("Authorization", [])
    if not said:
        raise RefusedError(401, Why.MISSING, "a token is needed here: Authorization: Bearer TOKEN")
    scheme, _, token = said[0].partition(" ")
    if len(said) > 1 or scheme.lower() != "bearer":
        raise RefusedError(401, Why.WRONG, "write one header Authorization: Bearer TOKEN")
    holder = tokens.find(token.strip())
    if holder is None:
        raise RefusedError(401, Why.WRONG, "this token is not known here")
    return holder.name, holder.access
