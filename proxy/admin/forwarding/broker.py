"""The client of brokers' own admin addresses; it follows redirects to addresses that the operator allows.

A request's body goes to the broker in parts of bounded size and time, so memory is bounded. The time in which a broker
does nothing is bounded, except while it waits for the client.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from protocol.endpoint import Endpoint
from proxy.admin.forwarding.paths import PREFIXES, why_not
from proxy.admin.handlers import RequestRefusedError
from proxy.admin.listener import connection_of
from proxy.brokers.targets import TargetRefusedError, Targets
from proxy.config.model import Config, ConfigError
from proxy.file_calls import READ_S, FileCallError, FileCalls
from proxy.files import FileReader, TokenFileError, read_token
from proxy.tls.certificates import Expiry, forward_tls


class ForwardOutcome(StrEnum):
    """The outcome of a forwarded request, counted on `/metrics`."""

    DONE = "done"
    """The broker answered with a status below 400."""
    REFUSED = "refused"
    """The broker answered with a status of 4xx."""
    FAILED = "failed"
    """The broker answered with a status of 5xx."""
    UNREACHABLE = "unreachable"
    """The broker cannot be reached, or gave no answer of HTTP."""
    SLOW = "slow"
    BROKEN_OFF = "broken_off"
    """The broker's answer ended too early."""
    REDIRECT = "redirect"
    """The broker redirected the request to where it may not go."""
    TOKEN = "token"  # noqa: S105 - the name of an outcome
    """The broker does not accept Sluice's token, or there is none to send."""
    BUSY = "busy"
    """The bound on requests in flight is reached."""
    CLIENT = "client"
    """The client hung up, took the answer too slowly, or its body was too large, too slow or broke off under way."""


def outcome_of(status: int) -> ForwardOutcome:
    """Name the outcome of an answer that is handed on."""
    if status < 400:
        return ForwardOutcome.DONE
    return ForwardOutcome.REFUSED if status < 500 else ForwardOutcome.FAILED


class ForwardError(Exception):
    """A request that cannot be passed on, or an answer that cannot be passed back.

    Args:
        status: The HTTP status.
        outcome: The outcome to count.
        reason: The reason for the caller: the error, with its key of the configuration, and the remedy.
    """

    def __init__(self, status: int, outcome: ForwardOutcome, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.outcome = outcome


def allowed_targets(config: Config) -> Targets:
    """Return the allowed addresses: the url's, those of `brokers`, and clients' allowed brokers at the url's port."""
    targets = Targets([])
    _allow(targets, config)
    return targets


def _allow(targets: Targets, config: Config) -> None:
    section = config.admin_forward
    assert section.url is not None
    hosts = (each.host for each in (*config.broker, *config.allowed_brokers))
    patterns = (section.url._replace(host=host) for host in hosts)
    targets.configure([section.url], (*section.brokers, *patterns), config.allowed_broker_networks)


def endpoint_of(url: URL) -> Endpoint:
    """Return the endpoint of a URL."""
    return Endpoint(url.scheme, url.host or "", url.port or 0)


def broker_token(file: Path) -> str:
    """Read the token that Sluice shows to brokers.

    Raises:
        ConfigError: If the file cannot be used.
    """
    try:
        return read_token(file)
    except TokenFileError as error:
        raise ConfigError([f"admin_forward.token: {error}"]) from None


class _Resolver(AbstractResolver):
    """Resolves names to addresses that were checked, and to no others."""

    def __init__(self, scheme: str, targets: Targets) -> None:
        self._scheme = scheme
        self._targets = targets

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - aiohttp's parameter; a broker may have any
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a broker."""
        try:
            addresses = await self._targets.resolve(Endpoint(self._scheme, host, port))
        except TargetRefusedError as error:
            raise OSError(str(error)) from None
        return [_result(host, each.host, each.port) for each in addresses]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _result(name: str, host: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=name, host=host, port=port, family=family, proto=0, flags=flags)


MOST_CLOCKS, CLOCK_S = 20, 3.0
"""Brokers that are asked for their time, at most, and the seconds for each: a caller waits for all of them."""
MOST_REDIRECTS = 5
_AS_IT_WAS = frozenset({307, 308})
_AS_ANOTHER = frozenset({301, 302, 303})
"""Statuses that no broker sends: Jetty sends them outside of the admin, and the next request's method may differ."""
_LONGEST_SHOWN = 200


def onward(answer: aiohttp.ClientResponse, targets: Targets) -> URL | None:
    """Return the next address to ask; None if the answer is final.

    Raises:
        ForwardError: If that address may not be asked: the request carries Sluice's own token.
    """
    location = answer.headers.get("Location")
    if answer.status not in _AS_IT_WAS | _AS_ANOTHER:
        return None
    if not location or answer.status in _AS_ANOTHER:
        raise redirected(f"with status {answer.status}, which cannot be followed")
    url = _joined(answer.url, location)
    if url is None:
        raise redirected(
            f"to {location[:_LONGEST_SHOWN]!r}, which is no {answer.url.scheme} address of a broker's admin"
        )
    if not targets.allows(endpoint_of(url)):
        remedy = "if it is a broker of yours, name it in admin_forward.brokers"
        raise redirected(f"to {endpoint_of(url).address}, which is not allowed; {remedy}")
    return url


def redirected(how: str) -> ForwardError:
    """Return the error of a request that the broker redirected to where it cannot go."""
    return ForwardError(502, ForwardOutcome.REDIRECT, f"the broker sent the request on {how}")


def _joined(url: URL, location: str) -> URL | None:
    try:
        joined = url.join(URL(location, encoded=True))
        is_usable = joined.scheme == url.scheme and bool(joined.host) and joined.raw_path.startswith(PREFIXES)
    except ValueError:
        return None
    return joined if is_usable and why_not(joined.raw_path_qs) is None else None


PART = 1024 * 1024
"""Bytes that are read before the broker gets any. A body that is no longer can be sent again after a redirect."""


class BodyRefusedError(RequestRefusedError):
    """A body does not come in time, is too large, or breaks off."""


class ClientBody:
    """A request's body. Each part has as much time as a whole request for Sluice itself.

    Args:
        request: The request.
        most: Most bytes of the body.
        patience_s: Seconds for each part.
    """

    def __init__(self, request: web.Request, most: int, patience_s: float) -> None:
        self._request = request
        self._most = most
        self._patience_s = patience_s
        self._size = 0
        self._is_at_end = False
        self._is_sent_on = False
        self.first = b""
        self.is_whole = False
        """Whether the first part is the whole body."""
        self.problem: BodyRefusedError | None = None
        """The error if the body ended too early; the broker then has a part of the body."""

    async def begin(self) -> None:
        """Read the first part.

        Raises:
            BodyRefusedError: If the part is too large, too slow, or breaks off.
        """
        declared = self._request.content_length
        if declared is not None and declared > self._most:
            raise self._too_large()
        connection, now = connection_of(self._request), asyncio.get_running_loop().time()
        self.first = await self._read(connection.due if connection else now + self._patience_s)
        self.is_whole = self._is_at_end
        if connection:
            connection.request_is_there()

    def for_broker(self, when: Callable[[bool], None]) -> bytes | AsyncIterator[bytes] | None:
        """Return the body to send: once, or any number of times if it is whole.

        Args:
            when: Called with True when the client's turn begins, and with False when the broker's does.
        """
        if self.is_whole:
            return self.first or None
        assert not self._is_sent_on, "the parts that were sent are gone"
        self._is_sent_on = True
        return self._parts(when)

    async def _parts(self, when: Callable[[bool], None]) -> AsyncIterator[bytes]:
        part = self.first
        while part:
            yield part
            when(True)
            try:
                part = await self._read(asyncio.get_running_loop().time() + self._patience_s)
            except BodyRefusedError as error:
                self.problem = error
                raise
            when(False)

    async def _read(self, due: float) -> bytes:
        part = bytearray()
        try:
            async with asyncio.timeout_at(due):
                while len(part) < PART and not self._is_at_end:
                    piece = await self._request.content.read(PART - len(part))
                    self._is_at_end = not piece
                    part += piece
        except TimeoutError:
            seconds = f"{self._patience_s:g} s (admin_access.request_timeout)"
            raise BodyRefusedError(
                408, f"neither {PART} more bytes of the body nor its end came within {seconds}"
            ) from None
        except (web.RequestPayloadError, ConnectionError):
            raise BodyRefusedError(400, "the body breaks off or is not as its headers say") from None
        self._size += len(part)
        if self._size > self._most:
            raise self._too_large()
        return bytes(part)

    def _too_large(self) -> BodyRefusedError:
        return BodyRefusedError(413, f"a body of more than {self._most} bytes (admin_forward.max_body)")


class ForwardTimeouts:
    """Ends an exchange when the broker's turn takes too long: to connect, to take a part, to answer.

    Args:
        seconds: The bound on each of these.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Bound the broker's turns while the block runs.

        Raises:
            TimeoutError: If a turn took too long.
        """
        try:
            async with asyncio.timeout(self._seconds) as self._timeout:
                yield
        finally:
            self._timeout = None

    def is_the_client_s(self, turn: bool) -> None:  # noqa: FBT001 - the two turns there are
        """Begin the client's or the broker's turn.

        A broker may answer before it has all of the body: then the bound has ended, and this does nothing.
        """
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(None if turn else asyncio.get_running_loop().time() + self._seconds)


_LONGEST_HEADER = 64 * 1024
"""Most bytes of a header: a peeked message's properties are in headers."""


@dataclass(frozen=True, slots=True)
class BrokerQuestion:
    """A request to a broker.

    Args:
        method: The HTTP method.
        target: Path and query, byte for byte.
        headers: The headers, without credentials.
        body: The body, if any.
        shows_token: Whether `admin_forward.token` goes along; else any answer is one, also a 401.
    """

    method: str
    target: str
    headers: CIMultiDict[str]
    body: ClientBody | None = None
    shows_token: bool = True


class BrokerAdmin:
    """A client of the broker's admin, and of the brokers that it redirects to.

    Args:
        config: The configuration; it has `admin_forward.url`.

    Raises:
        ConfigError: If a file that the configuration names cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self._section = section = config.admin_forward
        self._base = str(section.url)
        self._brokers = config.broker
        self._targets = allowed_targets(config)
        self._tls = forward_tls(section.ca) if section.has_tls else None
        self._session: aiohttp.ClientSession | None = None
        self._calls = FileCalls()
        if section.token:
            broker_token(section.token)

    def take_brokers(self, config: Config) -> None:
        """Allow the brokers of a configuration that is in force from now on, and those that they have named."""
        self._brokers = config.broker
        _allow(self._targets, config.model_copy(update={"admin_forward": self._section}))

    def expiries(self) -> tuple[Expiry, ...]:
        """Return when the authorities in force expire."""
        return self._tls.expiries if self._tls else ()

    def readers(self) -> tuple[FileReader, ...]:
        """Return what reads the authorities again, for the next request. The token is read for each request."""
        return self._tls.readers() if self._tls else ()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Keep an HTTP session, in which brokers can be asked, while the block runs.

        Each request has its own connection, as a broker may just close an idle one.
        """
        resolver = _Resolver("https" if self._section.has_tls else "http", self._targets)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True, resolver=resolver, use_dns_cache=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=["Accept", "Accept-Encoding", "Content-Type", "User-Agent"],
            timeout=aiohttp.ClientTimeout(total=None, sock_read=self._section.timeout),
            max_field_size=_LONGEST_HEADER,
        )
        try:
            yield
        finally:
            await self._session.close()

    @asynccontextmanager
    async def ask(self, question: BrokerQuestion, base: str = "") -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the head of the answer; the caller reads its body, and an unread rest is not waited for.

        Args:
            question: The request.
            base: The broker's web service; empty: that of `admin_forward.url`.

        Raises:
            ForwardError: If there is no answer that could be passed back.
            BodyRefusedError: If the request's body ends too early.
        """
        url = URL((base or self._base) + question.target, encoded=True)
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._send(url, question)
            try:
                target = onward(answer, self._targets)
                if target is None:
                    self._check_answer(answer, question)
                    yield answer
                    return
            finally:
                answer.close()
            if question.body is not None and not question.body.is_whole:
                raise redirected(f"to {target.origin()}, but its body is too large to be sent twice: send it there")
            url = target
        raise redirected(f"more than {MOST_REDIRECTS} times, at last to {url.origin()}")

    async def clocks_ahead_s(self) -> dict[str, float | str]:
        """Ask each configured broker for its time, `MOST_CLOCKS` at most.

        Brokers are asked at `admin_forward.url`, at the `admin_forward.brokers` without a `*`, and at the port of the
        url of each host of `broker` that neither names.

        Returns:
            By address, the seconds by which its clock is ahead of this machine's, at least, or why it is not known.
        """
        section = self._section
        assert section.url is not None
        named = [section.url, *(broker for broker in section.brokers if "*" not in broker.host)]
        hosts = {each.host for each in named}
        asked = [*named, *(section.url._replace(host=each.host) for each in self._brokers if each.host not in hosts)]
        bases = dict.fromkeys(str(each._replace(scheme=section.url.scheme)) for each in asked)
        first = list(bases)[:MOST_CLOCKS]
        return dict(zip(first, await asyncio.gather(*map(self._clock_ahead_s, first)), strict=True))

    async def _clock_ahead_s(self, base: str) -> float | str:
        # Each answer has the time, and the port is a guess for some of these hosts: it gets no token.
        headers = CIMultiDict(Accept="application/json")
        question = BrokerQuestion("GET", "/admin/v2/brokers/ready", headers, shows_token=False)
        before = time.time()
        try:
            async with asyncio.timeout(CLOCK_S), self.ask(question, base) as answer:
                after, date = time.time(), answer.headers.get("Date", "")
        except TimeoutError:
            return f"no answer within {CLOCK_S:g} s"
        except ForwardError as error:
            return str(error)
        try:
            at = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return "its answer has no date"
        # It may be any time of its second, and of the time that the question took.
        return at - after if at > after else min(0.0, at + 1 - before)

    async def _send(self, url: URL, question: BrokerQuestion) -> aiohttp.ClientResponse:
        assert self._session is not None, "connected"
        headers = await self._headers(question)
        patience = ForwardTimeouts(self._section.timeout)
        body = question.body.for_broker(patience.is_the_client_s) if question.body else None
        context = self._tls.context if self._tls else True
        try:
            async with patience.running():
                await self._targets.resolve(endpoint_of(url))
                return await self._session.request(
                    question.method, url, headers=headers, data=body, allow_redirects=False, ssl=context
                )
        except TimeoutError:
            seconds = f"{self._section.timeout:g} s (admin_forward.timeout)"
            raise ForwardError(
                504, ForwardOutcome.SLOW, f"{url.origin()}: no answer of the broker within {seconds}"
            ) from None
        except TargetRefusedError as error:
            raise _unreachable(url, str(error)) from None
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            if question.body and question.body.problem:
                raise question.body.problem from None
            raise _unreachable(url, _reason(error)) from None

    async def _headers(self, question: BrokerQuestion) -> CIMultiDict[str]:
        headers = question.headers.copy()
        if self._section.token and question.shows_token:
            file = self._section.token
            try:
                token = await self._calls.run(file, partial(broker_token, file), READ_S)
            except ConfigError as error:
                raise ForwardError(502, ForwardOutcome.TOKEN, str(error)) from None
            except FileCallError as error:
                raise ForwardError(502, ForwardOutcome.TOKEN, f"admin_forward.token: {file}: {error}") from None
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _check_answer(self, answer: aiohttp.ClientResponse, question: BrokerQuestion) -> None:
        """Refuse an upgrade and a 401: Sluice has let the caller in, so its own token is not at fault."""
        if answer.status < 200:
            reason = f"the broker says {answer.status}, which is no answer: is admin_forward.url its web service?"
            raise ForwardError(502, ForwardOutcome.FAILED, f"{answer.url.origin()}: {reason}")
        if answer.status == 401 and question.shows_token and self._section.caller != "authorization":
            refused = (
                "the token of admin_forward.token" if self._section.token else "requests without admin_forward.token"
            )
            raise ForwardError(
                502, ForwardOutcome.TOKEN, f"{answer.url.origin()}: the broker does not take {refused} (401)"
            )


def _unreachable(url: URL, why: str) -> ForwardError:
    remedy = "see that the broker runs, and that admin_forward.url is its web service"
    return ForwardError(502, ForwardOutcome.UNREACHABLE, f"{url.origin()} cannot be reached: {why}; {remedy}")


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"{error.certificate_error}; admin_forward.ca names the authority that signed its certificate"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.strerror or str(error.os_error)
    return str(error) or type(error).__name__
