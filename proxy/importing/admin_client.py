"""Asks a broker's admin REST: only ever GET, and a bounded number at once; errors name the remedy among the options.

Source: https://pulsar.apache.org/admin-rest-api/; redirects lead to the broker that owns the resource
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from yarl import URL

from adminrest.client import AdminClient, AdminCredentials, AdminError, RequestFailure
from protocol.endpoint import WEB_SERVICES
from proxy import typed_json
from proxy.files import TokenFileError, read_token
from proxy.importing.keys import shown
from proxy.importing.result import ImportFailed

MOST_REQUESTS = 16
"""Requests that are under way at the same time, at most."""
_PATIENCE_S = 60
_WEB_SERVICE_URL = replace(WEB_SERVICES, is_url=True)

_MEANINGS: Mapping[int | None, str] = MappingProxyType(
    {
        HTTPStatus.UNAUTHORIZED: "the broker wants a token that it accepts: {token} FILE",
        HTTPStatus.FORBIDDEN: "the token's role may not read this; give one of a superuser: {token} FILE",
        HTTPStatus.NOT_FOUND: "there is none; {url} is the URL of a broker's web service, as http://broker:8080",
    }
)

_REMEDIES = {
    RequestFailure.UNTRUSTED: "; SSL_CERT_FILE=FILE names a file of further authorities",
    RequestFailure.ASTRAY: "; give the URL of Pulsar's proxy, which asks every broker",
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RefusedAnswer:
    """A response with an error status that the caller is prepared for."""

    status: int


class Options(NamedTuple):
    """The names of a command's options for the broker's address and token."""

    url: str = "--from-admin"
    token: str = "--token-file"  # noqa: S105 - an option's name


OF_IMPORT = Options()


def path_of(*parts: str) -> str:
    """Return a path under `/admin/v2`, with each part escaped."""
    return "/".join(quote(part, safe="") for part in parts)


def token_in(path: Path | None) -> str:
    """Return the token in a file, or an empty string without a file.

    Raises:
        ImportFailed: If the file cannot be used.
    """
    try:
        return "" if path is None else read_token(path)
    except TokenFileError as error:
        raise ImportFailed([str(error)]) from None


def read_url(text: str, options: Options = OF_IMPORT) -> URL:
    """Return the URL of a broker's web service.

    Raises:
        ImportFailed: If the text is no such URL.
    """
    if "@" in text.partition("://")[2].partition("/")[0]:
        problem = f"{options.url}: the URL holds a user or password; give a token with {options.token}"
        raise ImportFailed([problem], is_of_words=True)
    try:
        endpoint, path = _WEB_SERVICE_URL.split(text)
        url = URL(f"{endpoint}{path}")
    except ValueError as error:
        problem = f"{options.url}: {shown(text)!r}: {getattr(error, 'problem', error)}"
        raise ImportFailed([problem], is_of_words=True) from None
    if url.query_string or url.fragment:
        problem = f"{options.url}: {shown(text)!r}: has a query; write it as {_WEB_SERVICE_URL.example}"
        raise ImportFailed([problem], is_of_words=True)
    return url


class BrokerAdminClient:
    """The admin REST of one broker.

    Args:
        client: Used for all requests, by several threads.
        threads: As many as there may be requests at once.
        options: By which a person said where the broker is and what opens it.
    """

    def __init__(self, client: AdminClient, threads: ThreadPoolExecutor, options: Options = OF_IMPORT) -> None:
        self._client = client
        self._threads = threads
        self._options = options

    async def get(self, path: str, kind: type[T], refusals: Collection[int] = ()) -> T | RefusedAnswer | None:
        """Ask for a path under `/admin/v2`; returns None where the answer has no body.

        Args:
            path: The path, escaped already.
            kind: The type that the JSON is decoded to.
            refusals: Statuses that the caller is prepared for.

        Raises:
            ImportFailed: For any other error status, no response, or a body that is no such JSON.
        """
        path = f"/admin/v2/{path}"
        url = f"{self._client.url}{path}"
        try:
            async with asyncio.timeout(_PATIENCE_S):
                body = await asyncio.get_running_loop().run_in_executor(self._threads, self._client.get, path)
        except TimeoutError:
            raise ImportFailed([f"{url}: no answer within {_PATIENCE_S} s"]) from None
        except AdminError as error:
            if error.status is not None and error.status in refusals:
                return RefusedAnswer(error.status)
            raise ImportFailed([f"{url}: {self._text_of(error)}"]) from None
        return _decoded(url, body, kind) if body else None

    def _text_of(self, error: AdminError) -> str:
        """The remedy where there is one, else the broker's own words."""
        if error.trouble is not RequestFailure.REFUSED:
            return error.problem + _REMEDIES.get(error.trouble, "")
        if error.status in _MEANINGS:
            return f"{error.status}: {_MEANINGS[error.status].format(**self._options._asdict())}"
        return f"{error.status}: {shown(error.reason or 'the broker gives no reason')}"


@asynccontextmanager
async def connected(url: URL, token: str, options: Options = OF_IMPORT) -> AsyncIterator[BrokerAdminClient]:
    """Connect to the admin REST at a URL.

    Args:
        url: Of the web service.
        token: Sent with each request unless empty; then no redirect to anywhere else than `url` is followed.
        options: By which a person gave these.
    """
    threads = ThreadPoolExecutor(MOST_REQUESTS, "broker-admin")
    try:
        with AdminClient(str(url), AdminCredentials(token, plain_http=True), timeout_s=_PATIENCE_S) as client:
            yield BrokerAdminClient(client, threads, options)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _decoded(url: str, body: bytes, kind: type[T]) -> T:
    try:
        return typed_json.decode(body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ImportFailed([f"{url}: the answer is not a broker's: {error}"]) from None
