"""Asks brokers' own admin addresses, and goes where they send it: to those that the operator allows."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proxy.admin.forwarding.body import ClientBody
from proxy.admin.forwarding.outcome import ForwardError, Outcome
from proxy.admin.forwarding.patience import Patience
from proxy.admin.forwarding.reach import address_of, allowed_targets, broker_token, connector
from proxy.admin.forwarding.redirects import MOST_REDIRECTS, onward, redirected
from proxy.brokers.targets import TargetRefusedError
from proxy.config.model import Config, ConfigError

_LONGEST_HEADER = 64 * 1024
"""A peeked message's properties are in headers."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a broker is asked.

    Args:
        method: Of HTTP.
        target: Path and query, byte for byte.
        headers: Without credentials.
        body: What is sent, if anything.
    """

    method: str
    target: str
    headers: CIMultiDict[str]
    body: ClientBody | None = None


class BrokerAdmin:
    """The broker's admin, and those of the brokers that it sends requests on to.

    Args:
        config: Of which `admin_forward.url` is given.

    Raises:
        ConfigError: If a file that it names cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self._section = section = config.admin_forward
        self._base = str(section.url)
        self._targets = allowed_targets(config)
        self._connector = connector(section, self._targets)
        self._session: aiohttp.ClientSession | None = None
        if section.token:
            broker_token(section.token)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Within this, brokers can be asked."""
        self._session = aiohttp.ClientSession(
            connector=self._connector(),
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
    async def ask(self, question: Question) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer's head; its body is still to be read, and what is unread at the end is not waited for.

        Raises:
            ForwardError: If there is none that could be handed on.
            BodyRefusedError: If the body that is to be sent ends too early.
        """
        url = URL(self._base + question.target, encoded=True)
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._send(url, question)
            try:
                target = onward(answer, self._targets)
                if target is None:
                    self._check_answer(answer)
                    yield answer
                    return
            finally:
                answer.close()
            if question.body is not None and not question.body.is_whole:
                raise redirected(f"to {target.origin()}, but its body is too large to be sent twice: send it there")
            url = target
        raise redirected(f"more than {MOST_REDIRECTS} times, at last to {url.origin()}")

    async def _send(self, url: URL, question: Question) -> aiohttp.ClientResponse:
        assert self._session is not None, "connected"
        headers = await self._headers(question)
        patience = Patience(self._section.timeout)
        body = question.body.for_broker(patience.is_the_client_s) if question.body else None
        try:
            async with patience.running():
                await self._targets.resolve(address_of(url))
                return await self._session.request(
                    question.method, url, headers=headers, data=body, allow_redirects=False
                )
        except TimeoutError:
            seconds = f"{self._section.timeout:g} s (admin_forward.timeout)"
            raise ForwardError(504, Outcome.SLOW, f"{url.origin()}: no answer of the broker within {seconds}") from None
        except TargetRefusedError as error:
            raise _unreachable(url, str(error)) from None
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            if question.body and question.body.problem:
                raise question.body.problem from None
            raise _unreachable(url, _told(error)) from None

    async def _headers(self, question: Question) -> CIMultiDict[str]:
        headers = question.headers.copy()
        if self._section.token:
            try:
                headers["Authorization"] = f"Bearer {await asyncio.to_thread(broker_token, self._section.token)}"
            except ConfigError as error:
                raise ForwardError(502, Outcome.TOKEN, str(error)) from None
        return headers

    def _check_answer(self, answer: aiohttp.ClientResponse) -> None:
        """Not an upgrade, nor a 401: Sluice has let the caller in, who would look for the mistake in his own token."""
        if answer.status < 200:
            what = f"the broker says {answer.status}, which is no answer: is admin_forward.url its web service?"
            raise ForwardError(502, Outcome.FAILED, f"{answer.url.origin()}: {what}")
        if answer.status == 401:
            what = "the token of admin_forward.token" if self._section.token else "requests without admin_forward.token"
            raise ForwardError(502, Outcome.TOKEN, f"{answer.url.origin()}: the broker does not take {what} (401)")


def _unreachable(url: URL, why: str) -> ForwardError:
    remedy = "see that the broker runs, and that admin_forward.url is its web service"
    return ForwardError(502, Outcome.UNREACHABLE, f"{url.origin()} cannot be reached: {why}; {remedy}")


def _told(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"{error.certificate_error}; admin_forward.ca names who has signed its certificate"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.strerror or str(error.os_error)
    return str(error) or type(error).__name__
