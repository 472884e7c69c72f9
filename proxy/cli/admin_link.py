"""Asks the admin address of a running proxy, whatever locks it has; blocking, for commands.

    link = AdminLink.of(options)
    link.get_json("/sluice/status")

Every method raises AdminLinkError if there is no answer, or if it is a refusal. Environment variables for HTTP proxies
do not count: a token goes to the address that was named and nowhere else.
"""

import http.client
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import msgspec

from protocol.endpoint import Endpoint, EndpointError, EndpointForm
from proxy.cli.options import AdminLinkError, AdminOptions
from proxy.files import reopenable, token_in

PATIENCE_S = 10.0
_MOST_BYTES = 64 * 1024**2
_MOST_REASON = 1000
"""Characters of a reason that are shown."""
_ADMIN = EndpointForm(("http", "https"), "127.0.0.1:8080 or https://HOST:PORT")
_SERVER = "--admin must be the admin address of a running `sluice serve`"
_SPEAKS_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})

Query = Mapping[str, str]


class AdminLink:
    """One admin address.

    Args:
        options: Where it is, and what opens it.
        patience_s: For connecting, and for each part of an answer.

    Raises:
        AdminLinkError: If the options contradict each other, or a file cannot be used.
    """

    def __init__(self, options: AdminOptions, patience_s: float = PATIENCE_S) -> None:
        self.address = options.admin
        """As it was given."""
        self._patience_s = patience_s
        self._endpoint = _endpoint(options)
        has_tls = self._endpoint.scheme == "https"
        self._tls = _context(options) if has_tls else None
        self._token = read_token(options.token_file) if options.token_file else None
        self._token_file = options.token_file
        self._is_safe = has_tls or options.plain_http or self._token is None

    @classmethod
    def of(cls, options: AdminOptions) -> Self:
        """The one that a command was given."""
        return cls(options)

    def get(self, path: str, query: Query | None = None) -> bytes:
        """The body of the answer, undecoded."""
        return self.ask("GET", path, query)

    def get_json(self, path: str, query: Query | None = None) -> Any:
        """The answer's JSON; None if it has no body."""
        return self._json(self.ask("GET", path, query))

    def put_json(self, path: str, body: object, query: Query | None = None) -> Any:
        """Send JSON; the answer's, None if it has no body."""
        return self._json(self.ask("PUT", path, query, msgspec.json.encode(body)))

    def post_json(self, path: str, body: object, query: Query | None = None) -> Any:
        """Send JSON; the answer's, None if it has no body."""
        return self._json(self.ask("POST", path, query, msgspec.json.encode(body)))

    def delete(self, path: str, query: Query | None = None) -> Any:
        """Take away; the answer's JSON, None if it has no body."""
        return self._json(self.ask("DELETE", path, query))

    def ask(self, method: str, path: str, query: Query | None = None, body: bytes | None = None) -> bytes:
        """One request.

        Args:
            method: Of HTTP.
            path: With its parts escaped.
            query: Is escaped here.
            body: JSON.

        Raises:
            AdminLinkError: If there is no answer, one that is not Sluice's, or a refusal (with its status).
        """
        try:
            status, answer = self._exchange(method, path + (f"?{urlencode(query)}" if query else ""), body)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise AdminLinkError(f"{self.address}: {_explained(error)}") from None
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise AdminLinkError(self._refusal(status, _reason_in(answer)), status)
        return answer

    def _exchange(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        connection = self._connection()
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.connect()
            self._check_overheard(connection)
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            content = answer.read(_MOST_BYTES + 1)
        finally:
            connection.close()
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        if answer.length:  # a read with a bound takes what breaks off for whole
            raise http.client.IncompleteRead(content, answer.length)
        return answer.status, content

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._endpoint.host, self._endpoint.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=self._patience_s)
        return http.client.HTTPSConnection(host, port, timeout=self._patience_s, context=self._tls)

    def _check_overheard(self, connection: http.client.HTTPConnection) -> None:
        """By the address that a name has led to: the token goes there, whatever the name leads to next."""
        peer = str(connection.sock.getpeername()[0])
        if not (self._is_safe or ip_address(peer.partition("%")[0]).is_loopback):
            remedy = "https://HOST:PORT, or --plain-http if nobody listens on the way"
            raise AdminLinkError(f"{self.address}: the token would go to {peer} in the clear: {remedy}")

    def _refusal(self, status: int, reason: str | None) -> str:
        if reason is None:
            return f"{self.address}: HTTP {status}: the answer is not Sluice's; {_SERVER}"
        if status == HTTPStatus.UNAUTHORIZED and self._token_file is not None:
            return f"{self.address}: {reason} (--token-file {self._token_file})"
        if status == HTTPStatus.UNAUTHORIZED:
            return f"{self.address}: {reason}; --token-file FILE gives a token, --cert and --key a certificate"
        return f"{self.address}: {reason}" if status == HTTPStatus.FORBIDDEN else reason

    def _json(self, answer: bytes) -> Any:
        try:
            return msgspec.json.decode(answer) if answer else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise AdminLinkError(f"{self.address}: the answer is not Sluice's; {_SERVER}") from None


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        AdminLinkError: If the file cannot be read, or holds none. The text never shows the content.
    """
    try:
        token = token_in(path)
    except OSError as error:
        raise AdminLinkError(f"--token-file: {path}: cannot be read: {error.strerror}") from None
    if not token:
        raise AdminLinkError(f"--token-file: {path}: is to hold one token in one line, and nothing else")
    return token


def _endpoint(options: AdminOptions) -> Endpoint:
    """The admin address; its scheme is `https` if files for TLS are given, too."""
    try:
        endpoint = _ADMIN.parse(options.admin)
    except EndpointError as error:
        told = f"{error.problem}; a token goes into --token-file"
        raise AdminLinkError(f"--admin: {options.admin[:200]!r}: {told}") from None
    if not (options.ca or options.cert or options.key):
        return endpoint
    if options.admin.startswith("http://"):
        raise AdminLinkError(f"--admin: {options.admin}: is without TLS, --ca, --cert and --key are for https://")
    return endpoint._replace(scheme="https")


def _context(options: AdminOptions) -> ssl.SSLContext:
    with ExitStack() as opened:
        ca = _opened(opened, "--ca", options.ca)
        cert = _opened(opened, "--cert", options.cert)
        key = _opened(opened, "--key", options.key)
        if key and not cert:
            raise AdminLinkError(f"--key: {options.key}: is the key of no certificate; --cert FILE")
        try:
            context = ssl.create_default_context(cafile=ca)
        except ssl.SSLError:
            raise AdminLinkError(f"--ca: {options.ca}: is not a PEM certificate") from None
        if cert:
            try:  # without a password OpenSSL would ask the terminal
                context.load_cert_chain(cert, key, password="")
            except (ssl.SSLError, ValueError):
                what = "is not a PEM certificate with its private key (--key FILE) without a password"
                raise AdminLinkError(f"--cert: {options.cert}: {what}") from None
        return context


def _opened(files: ExitStack, option: str, path: Path | None) -> str | None:
    try:
        return files.enter_context(reopenable(path)) if path else None
    except OSError as error:
        raise AdminLinkError(f"{option}: {path}: cannot be read: {error.strerror}") from None


def _explained(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = "--ca FILE names who has signed it, --admin must be a name in it"
        return f"its certificate is not trusted ({error.verify_message}); {remedy}"
    reason = str(getattr(error, "reason", None) or "")
    if isinstance(error, ssl.SSLError) and reason in _SPEAKS_NO_TLS:
        return "does not speak TLS; http://HOST:PORT without --ca and --cert"
    if isinstance(error, ssl.SSLError) and "ALERT" in reason:
        return f"ends TLS ({reason.lower().replace('_', ' ')}): it does not take the client certificate (--cert, --key)"
    what = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0][:200]
    return f"no answer ({what}); {_SERVER}, with https:// if that has TLS"


def _reason_in(answer: bytes) -> str | None:
    try:
        reason = msgspec.json.decode(answer)["reason"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None
    return " ".join(str(reason).split())[:_MOST_REASON]
