"""The client of admin REST addresses, Sluice's and Pulsar's: commands, load tools, benchmarks and the demo share it.

    AdminClient("http://127.0.0.1:8080").get_json("/sluice/status")

Calls block until the answer is there. A token goes to the address that was given and to no other one. Environment
variables for HTTP proxies do not count. What a person can do about an error is for the caller to add: the client does
not know by which options it was opened.
"""

import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode, urljoin
from weakref import WeakSet

import msgspec
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ProtocolError

from protocol.endpoint import Endpoint, EndpointForm
from protocol.printable import printable

TIMEOUT_S = 30.0
MOST_REDIRECTS = 10
MOST_KEPT = 16
"""Connections to one address that are kept from one request to the next."""
MOST_BYTES = 64 * 1024**2
"""Of one answer."""
_MOST_REASON = 1000
"""Characters of a server's own words that are shown."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAME_METHOD = frozenset({307, 308})
_ENDS = (ConnectionRefusedError, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)
"""Errors of a process that has ended, or ends; the last one is the end of a connection within TLS."""
_SPEAKS_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})

ADDRESSES = EndpointForm(
    ("http", "https"), example="http://127.0.0.1:8080", ports={"http": 80, "https": 443}, is_url=True
)
Query = Mapping[str, str]


class RequestFailure(Enum):
    """The kinds of failure of a request."""

    DISCONNECTED = auto()
    """The connection was refused or reset, or ended within TLS: no process listens there, or it has just ended."""
    NO_ANSWER = auto()
    """No answer in time, redirects that do not end, or an answer that breaks off, is too long or is not HTTP."""
    UNTRUSTED = auto()
    """The server's certificate is not signed by an authority that counts, or is another name's."""
    NO_TLS = auto()
    """The server speaks HTTP without TLS."""
    CLIENT_UNTRUSTED = auto()
    """The server does not take the client's certificate."""
    OVERHEARD = auto()
    """The token would go to another machine without TLS."""
    ASTRAY = auto()
    """A redirect leads to another address, where the token does not go."""
    NO_JSON = auto()
    """The answer is not JSON."""
    REFUSED = auto()
    """The server answered with an error."""


class AdminError(Exception):
    """A request came to nothing; the text is one line that names it.

    Args:
        request: Method and URL.
        trouble: The kind of failure.
        problem: The failure in words.
        status: Of HTTP, if the server answered with an error.
        reason: The server's own words, as Sluice and Pulsar give them (`{"reason": …}`); None if it gave none.
    """

    def __init__(
        self, request: str, trouble: RequestFailure, problem: str, status: int | None = None, reason: str | None = None
    ) -> None:
        super().__init__(f"{request}: {problem}")
        self.trouble = trouble
        self.problem = problem
        self.status = status
        self.reason = reason


class AdminCredentials(NamedTuple):
    """The credentials for an admin address.

    Args:
        token: Sent with each request, unless empty.
        tls: Used for `https`; None: the system's authorities count, and the client shows no certificate.
        plain_http: Whether the token may go to other machines without TLS.
    """

    token: str = ""
    tls: ssl.SSLContext | None = None
    plain_http: bool = False


def trusting(ca: str | None = None) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts the authorities of a file, or the system's.

    `ssl.create_default_context` would also write the keys of connections to the file that SSLKEYLOGFILE names.

    Raises:
        OSError: If the file cannot be used; an `ssl.SSLError` if it holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca)
    return context


OPEN = AdminCredentials()
"""Of an address that everybody may use."""


class AdminClient:
    """The client of one admin address; several threads may use it.

    As a context manager it keeps connections open from one request to the next, and closes all at the end: a request
    that another thread still waits for then fails.

    Args:
        url: `http://HOST:PORT` or `https://HOST:PORT`, perhaps with a path before all paths.
        access: The credentials for it.
        timeout_s: For connecting, and for each part of an answer.
        most_redirects: How many are followed, within the scheme or to `https`; with a token, at the same address only.
        most_bytes: Bytes of an answer, at most; None: `MOST_BYTES`.
        kept_header: Name of a header; its value in the first answer that has it is sent with every later request.
    """

    def __init__(
        self,
        url: str,
        access: AdminCredentials = OPEN,
        *,
        timeout_s: float = TIMEOUT_S,
        most_redirects: int = MOST_REDIRECTS,
        most_bytes: int | None = None,
        kept_header: str = "",
    ) -> None:
        self.url = url.rstrip("/")
        self._access = access
        self._timeout_s = timeout_s
        self._most_redirects = most_redirects
        self._most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self._kept_header = kept_header
        self._kept_value = ""
        self._keeps = False
        self._pools: dict[Endpoint, HTTPConnectionPool] = {}
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def __enter__(self) -> Self:
        self._keeps = True
        return self

    def __exit__(self, *_: object) -> None:
        self._keeps = False
        while self._pools:
            self._pools.popitem()[1].close()
        for connection in self._sockets.copy():
            with suppress(OSError):  # it may be over by now
                connection.shutdown(socket.SHUT_RDWR)

    def get(self, path: str, query: Query | None = None) -> bytes:
        """Return the body that is served at a path, as it is."""
        return self.ask("GET", path, query)

    def get_json(self, path: str, query: Query | None = None) -> Any:
        """Return the JSON that is served at a path; None if the answer has no body."""
        return self.call("GET", path, None, query)

    def call(self, method: str, path: str, body: object = None, query: Query | None = None) -> Any:
        """Send JSON unless it is None; returns the answer's, None if it has no body.

        Raises:
            AdminError: As `ask`, or if the answer is not JSON.
        """
        answer = self.ask(method, path, query, None if body is None else msgspec.json.encode(body))
        try:
            return msgspec.json.decode(answer) if answer else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            error = AdminError(f"{method} {self.url}{path}", RequestFailure.NO_JSON, "the answer is not JSON")
            raise self.failed(error) from None

    def ask(self, method: str, path: str, query: Query | None = None, body: bytes | None = None) -> bytes:
        """Send one request; returns the answer's body.

        Args:
            method: Of HTTP.
            path: From `/` on, with its parts escaped.
            query: Is escaped here.
            body: JSON; None: none is sent.

        Raises:
            AdminError: If there is no answer, or it is an error.
        """
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            status, answer = self._follow(method, url, body)
        except (OSError, ValueError, HTTPError) as error:
            raise self.failed(AdminError(f"{method} {url}", *_explained(error))) from error
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            reason = _reason_in(answer)
            text = _one_line(answer.decode(errors="replace")) if reason is None else reason
            problem = f"{status} {text}".rstrip()
            raise self.failed(AdminError(f"{method} {url}", RequestFailure.REFUSED, problem, status, reason))
        return answer

    def failed(self, error: AdminError) -> Exception:
        """Return the exception to raise: a client that knows its user's options adds the remedy."""
        return error

    def is_ready(self, path: str = "/readyz") -> bool:
        """Return whether a health page says yes."""
        try:
            self.get(path)
        except AdminError:
            return False
        return True

    def make_tenant(self, tenant: str) -> None:
        """Make a tenant of Pulsar's standalone cluster."""
        self.call("PUT", f"/admin/v2/tenants/{tenant}", {"adminRoles": [], "allowedClusters": ["standalone"]})

    def make_namespace(self, namespace: str) -> None:
        """Make Pulsar's namespace `tenant/name`."""
        self.call("PUT", f"/admin/v2/namespaces/{namespace}", {})

    def stats(self, topic: str) -> dict[str, Any]:
        """Return Pulsar's statistics of a topic."""
        stats: dict[str, Any] = self.get_json(f"/admin/v2/{topic_path(topic)}/stats")
        return stats

    def _follow(self, method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        """Status and body of the answer, wherever redirects lead."""
        for _ in range(self._most_redirects + 1):
            endpoint, target = ADDRESSES.split(url)
            status, location, answer = self._exchange(endpoint, method, target, body)
            is_followed = status in _REDIRECTS if method == "GET" else status in _SAME_METHOD
            if not (self._most_redirects and is_followed and location):
                return status, answer
            url = self._redirected(endpoint, urljoin(url, location).partition("#")[0])
        raise ValueError(f"it is redirected more than {self._most_redirects} times")

    def _redirected(self, endpoint: Endpoint, url: str) -> str:
        """The URL to which an answer of `endpoint` leads, if it may."""
        if url.partition("://")[0] not in {"https", endpoint.scheme}:
            raise ValueError(f"it is redirected to {_one_line(url)}, which is not {endpoint.scheme}")
        (to, _), (given, _) = ADDRESSES.split(url), ADDRESSES.split(self.url)
        if self._access.token and _as_named(to) != _as_named(given):
            raise _AstrayError(f"it is redirected to {_one_line(str(to))}, but the token is sent to {given} only")
        return url

    def _exchange(self, endpoint: Endpoint, method: str, target: str, body: bytes | None) -> tuple[int, str, bytes]:
        """Status, `Location` and body of one answer."""
        headers = {"Accept": "*/*"} | ({} if body is None else {"Content-Type": "application/json"})
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token}"
        if self._kept_value:
            headers[self._kept_header] = self._kept_value
        pool = self._pools.get(endpoint) or self._pool_for(endpoint)
        if self._keeps:
            self._pools[endpoint] = pool
        ask = partial(pool.urlopen, method, target or "/", body, headers, retries=False, preload_content=False)
        try:
            answer = ask()
        except ProtocolError:  # the server may just have closed the connection that was kept
            if method != "GET":
                raise
            answer = ask()
        try:
            content = answer.read(self._most_bytes, decode_content=False)
            if answer.read(1):  # what breaks off raises here
                raise ValueError(f"it has more than {self._most_bytes} bytes")
            if self._kept_header and not self._kept_value:
                self._kept_value = answer.headers.get(self._kept_header, "")
            return answer.status, answer.headers.get("Location", ""), content
        finally:
            answer.close()  # the pool has the connection already if the answer was read to its end
            if not self._keeps:
                pool.close()

    def _pool_for(self, endpoint: Endpoint) -> HTTPConnectionPool:
        settings: dict[str, Any] = {"timeout": self._timeout_s, "maxsize": MOST_KEPT, "connected": self._connected}
        if endpoint.scheme == "http":
            return _Pool(endpoint.host, endpoint.port, **settings)
        return _TlsPool(endpoint.name, endpoint.port, ssl_context=self._access.tls or trusting(), **settings)

    def _connected(self, connection: socket.socket) -> None:
        """Look where the name has led to, before the token goes there."""
        self._sockets.add(connection)
        if not self._access.token or self._access.plain_http or isinstance(connection, ssl.SSLSocket):
            return
        peer = str(connection.getpeername()[0])
        if not ip_address(peer.partition("%")[0]).is_loopback:
            raise _OverheardError(f"the token would go to {peer} in the clear")


class _Connection(HTTPConnection):
    """A connection that its client looks at before anything is sent."""

    def __init__(self, *arguments: Any, connected: Callable[[socket.socket], None], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._on_connected = connected

    def connect(self) -> None:
        super().connect()
        self._on_connected(self.sock)


class _TlsConnection(_Connection, HTTPSConnection):
    """A connection by TLS that its client looks at before anything is sent."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _AstrayError(ValueError):
    """A redirect is not followed for the token's sake."""


class _OverheardError(ValueError):
    """A token is not sent."""


def _explained(error: Exception) -> tuple[RequestFailure, str]:
    """Say in words what happened in place of an answer."""
    if isinstance(error, _AstrayError):
        return RequestFailure.ASTRAY, str(error)
    if isinstance(error, _OverheardError):
        return RequestFailure.OVERHEARD, str(error)
    root = _root(error)
    if isinstance(root, ssl.SSLCertVerificationError):
        return RequestFailure.UNTRUSTED, f"its certificate is not trusted ({root.verify_message})"
    reason = str(getattr(root, "reason", None) or "")
    if isinstance(root, ssl.SSLError) and reason in _SPEAKS_NO_TLS:
        return RequestFailure.NO_TLS, "does not speak TLS"
    if isinstance(root, ssl.SSLError) and "ALERT" in reason:
        alert = reason.lower().replace("_", " ")
        return RequestFailure.CLIENT_UNTRUSTED, f"ends TLS ({alert}): it does not take the client certificate"
    problem = getattr(root, "strerror", None) or str(root) or type(root).__name__
    failure = RequestFailure.DISCONNECTED if isinstance(root, _ENDS) else RequestFailure.NO_ANSWER
    return failure, f"no answer ({problem.splitlines()[0][:200]})"


def _root(error: BaseException) -> BaseException:
    """The error of the socket, of TLS or of HTTP that urllib3 has wrapped."""
    while isinstance(error, HTTPError):
        inner = error.__cause__ or next((each for each in error.args if isinstance(each, Exception)), None)
        if inner is None:
            break
        error = inner
    return error


def _reason_in(answer: bytes) -> str | None:
    try:
        return _one_line(str(msgspec.json.decode(answer)["reason"]))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None


def _one_line(text: str) -> str:
    """Return a server's text without control characters, which a terminal would obey."""
    return printable(" ".join(text.split()))[:_MOST_REASON]


def _as_named(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint with its host in small letters: DNS names do not differ by capitals."""
    return endpoint._replace(host=endpoint.name)


def topic_path(topic: str) -> str:
    """Return a topic as paths name it: `persistent://tenant/shop/a+b c` is `persistent/tenant/shop/a%2Bb%20c`.

    A broker and Sluice take a `+` in the name of a topic for a space.
    """
    return "/".join(quote(part, safe="") for part in topic.replace("://", "/", 1).split("/", 3))
