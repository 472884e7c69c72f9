"""Asks a broker's admin REST: only ever GET, a bounded number at once, each answer of a bounded size.

Source: https://pulsar.apache.org/admin-rest-api/; redirects lead to the broker that owns what is asked about
"""

import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from proxy.files import token_in
from proxy.importing.keys import shown
from proxy.importing.result import ImportFailed

MOST_REQUESTS = 16
"""At once."""
_MOST_BYTES = 64 * 1024**2
_MOST_REDIRECTS = 10
_PATIENCE_S = 60
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

_MEANINGS = MappingProxyType(
    {
        HTTPStatus.UNAUTHORIZED: "the broker wants a token that it accepts: {token} FILE",
        HTTPStatus.FORBIDDEN: "the token's role may not read this; give one of a superuser: {token} FILE",
        HTTPStatus.NOT_FOUND: "there is none; {url} is the URL of a broker's web service, as http://broker:8080",
    }
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RefusedAnswer:
    """An answer that a caller is prepared for, by its status."""

    status: int


class Options(NamedTuple):
    """What a command's options are called, by which a person said where the broker is and what opens it."""

    url: str = "--from-admin"
    token: str = "--token-file"  # noqa: S105 - an option's name


OF_IMPORT = Options()


def path_of(*parts: str) -> str:
    """A path under `/admin/v2`, each part escaped."""
    return "/".join(quote(part, safe="") for part in parts)


def read_token(path: Path | None) -> str:
    """The token in a file, empty without one.

    Raises:
        ImportFailed: If the file cannot be read, or holds none. The text never shows the content.
    """
    if path is None:
        return ""
    try:
        token = token_in(path)
    except OSError as error:
        raise ImportFailed([f"{path}: cannot be read: {error.strerror}"]) from None
    if not token:
        raise ImportFailed([f"{path}: holds no token; it is to hold one, in one line, and nothing else"])
    return token


def read_url(text: str, options: Options = OF_IMPORT) -> URL:
    """The address of a broker's web service.

    Raises:
        ImportFailed: If it is none.
    """
    try:
        url = URL(text)
        usable = url.scheme in {"http", "https"} and url.host and url.port
    except ValueError:
        usable = False
    if not usable or url.query_string or url.fragment:
        raise ImportFailed([f"{options.url}: {shown(text)!r}: write the broker's web service as http://broker:8080"])
    if url.user is not None or url.password is not None:
        raise ImportFailed([f"{options.url}: the URL holds a user or password; give a token with {options.token}"])
    return url


class BrokerAdminClient:
    """One broker's admin REST.

    Args:
        session: Used for all requests.
        url: Of the web service.
        token: Sent with each request unless empty; then no redirect to anywhere else than `url` is followed.
        options: By which a person gave these.
    """

    def __init__(self, session: aiohttp.ClientSession, url: URL, token: str, options: Options = OF_IMPORT) -> None:
        self._options = options
        self._session = session
        self._base = str(url).rstrip("/")
        self._given = url.origin()
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    async def get(self, path: str, kind: type[T], refusals: Collection[int] = ()) -> T | RefusedAnswer | None:
        """What the broker says at a path under `/admin/v2`, None where it says nothing.

        Args:
            path: Escaped already.
            kind: What the JSON is read as.
            refusals: Statuses that the caller is prepared for.

        Raises:
            ImportFailed: For any other status, no answer, or one that is no such JSON.
        """
        url = URL(f"{self._base}/admin/v2/{path}", encoded=True)
        try:
            status, body = await self._follow(url)
        except TimeoutError:
            raise ImportFailed([f"{url}: no answer within {_PATIENCE_S} s"]) from None
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            raise ImportFailed([f"{url}: no answer ({_reason(error)})"]) from None
        if status in refusals:
            return RefusedAnswer(status)
        if status not in {HTTPStatus.OK, HTTPStatus.NO_CONTENT}:
            raise ImportFailed([f"{url}: {status}: {_told(status, body, self._options)}"])
        return _decoded(url, body, kind) if body else None

    def _why_not_followed(self) -> str:
        """Whoever answers at the URL could else have the token sent anywhere."""
        return f"but the token is sent to {self._given} only; give the URL of Pulsar's proxy, which asks every broker"

    async def _follow(self, url: URL) -> tuple[int, bytes]:
        for _ in range(_MOST_REDIRECTS):
            async with self._session.get(url, headers=self._headers, allow_redirects=False) as answer:
                location = answer.headers.get("Location")
                if answer.status not in _REDIRECTS or location is None:
                    return answer.status, await _read(answer)
            target = url.join(URL(location))
            if target.scheme not in {"https", url.scheme}:
                raise ValueError(f"redirected to {shown(location)}, which is not {url.scheme}")
            if "Authorization" in self._headers and target.origin() != self._given:
                raise ValueError(f"redirected to {shown(str(target.origin()))}, {self._why_not_followed()}")
            url = target
        raise ValueError(f"redirected more than {_MOST_REDIRECTS} times")


@asynccontextmanager
async def connected(url: URL, token: str, options: Options = OF_IMPORT) -> AsyncIterator[BrokerAdminClient]:
    """The admin REST at a URL."""
    connector = aiohttp.TCPConnector(limit=MOST_REQUESTS)
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield BrokerAdminClient(session, url, token, options)


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in answer.content.iter_chunked(65536):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise ValueError(f"the answer has more than {_MOST_BYTES} bytes")
    return b"".join(parts)


def _decoded(url: URL, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ImportFailed([f"{url}: the answer is not a broker's: {error}"]) from None


def _told(status: int, body: bytes, options: Options) -> str:
    """Our own words for what we know the remedy of, else the broker's."""
    meaning = _MEANINGS.get(HTTPStatus(status)) if status in set(HTTPStatus) else None
    if meaning is not None:
        return meaning.format(**options._asdict())
    try:
        return shown(str(msgspec.json.decode(body)["reason"]).strip())
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return "the broker gives no reason"


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"{error.certificate_error}; SSL_CERT_FILE=FILE names a file of further authorities"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.strerror or str(error.os_error)
    return str(error) or type(error).__name__
