"""Tools of the admin REST's handlers: reading requests, answering, and describing themselves for the OpenAPI page.

Errors have Pulsar's own statuses and reasons. In a query, each key may occur once, and keys that the handler does not
know are refused.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from itertools import repeat
from typing import Any, BinaryIO, ClassVar, Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from proxy.admin.auth import CALLER
from proxy.admin.json_text import json_of
from proxy.admin.listener import connection_of
from proxy.admin.refusals import refusal
from proxy.bulk import AbandonedError
from proxy.policies.bodies import BodyError
from proxy.policies.keys import Layer, PolicyKey, Principal
from proxy.policies.service import Expected, NotAsExpectedError, NotCarriedError, tag_of
from proxy.policies.state import BeyondError
from proxy.policies.store import StoreError
from proxy.slices import Slices, Work

T = TypeVar("T")
_JSON = "application/json"


class RequestRefusedError(Exception):
    """A request that cannot be done.

    Args:
        status: The HTTP status.
        reason: The reason for the caller.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def answering(handler: Handler) -> Handler:
    """Wrap a handler so that errors of a request become answers."""

    @wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except RequestRefusedError as error:
            return refusal(error.status, str(error))
        except BeyondError as error:
            return refusal(403, str(error))
        except BodyError as error:
            return refusal(400, str(error))
        except RecursionError:
            return refusal(400, "the body is nested too deeply")
        except (StoreError, NotAsExpectedError, NotCarriedError, AbandonedError) as error:
            return refusal(*_not_changed(error))

    return answer


def _not_changed(error: Exception) -> tuple[int, str]:
    if isinstance(error, StoreError):
        return 500, f"nothing has changed: {error}"
    if isinstance(error, NotAsExpectedError):
        return 412, str(error)
    return (504 if isinstance(error, NotCarriedError) and error.was_sent else 503), str(error)


def caller_of(request: web.Request) -> Principal:
    """Return the caller as an author, for the audit log."""
    caller = request[CALLER]
    return Principal(caller.name, caller.address, caller.tenants)


def layer_of(request: web.Request) -> Layer:
    """Return the layer in which a caller's limits are written: a token for some tenants has one of its own."""
    return Layer.REST if request[CALLER].tenants is None else Layer.TENANT


def author_shown(request: web.Request, author: str, origin: str) -> str:
    """Return the author of a value as a caller may see it: to a tenant, operators have no names."""
    return author if request[CALLER].tenants is None or origin == Layer.TENANT.origin else ""


async def json_text(request: web.Request) -> bytes:
    """Return the body; empty if there is none, or if it is `null`.

    Raises:
        RequestRefusedError: If its content type is not JSON. No page can make a browser send that for another site.
    """
    text = await request.read()
    if request.content_type != _JSON and text:
        raise RequestRefusedError(415, f"send the body with the header Content-Type: {_JSON}")
    return b"" if is_null(text) else text


def is_null(text: bytes) -> bool:
    """Return whether a body is JSON's `null`."""
    return len(text) < 100 and text.strip() == b"null"


def shown(body: msgspec.Struct | dict[str, str] | list[str] | str) -> web.Response:
    """Return a response with a value; a bare name is written without quotes, as Pulsar does."""
    text = body.encode() if isinstance(body, str) else json_of(body)
    return web.Response(body=text, content_type=_JSON)


ON_MADE: web.RequestKey[partial[None]] = web.RequestKey("on_made", partial)
"""A function that is called when a request's answer is made, with its size and whether it is a file."""
_PIECE = 64 * 1024
"""Bytes of an answer that are written in one go."""


async def sent(request: web.Request, body: bytes | Sequence[bytes], headers: Mapping[str, str]) -> web.StreamResponse:
    """Send an answer that may be large, piece by piece, as fast as the client takes it.

    The client has the time of a request to take it; until then its connection counts as waiting for the client.

    Args:
        request: The request.
        body: The answer, whole or in pieces.
        headers: Its headers.
    """
    parts = [body] if isinstance(body, bytes) else body
    size = sum(map(len, parts))
    if size <= _PIECE:
        return web.Response(body=b"".join(parts), headers=headers)

    async def pieces() -> AsyncIterator[bytes]:
        for part in parts:
            for begin in range(0, len(part), _PIECE):
                yield part[begin : begin + _PIECE]
                await asyncio.sleep(0)

    return await _sent_by_piece(request, pieces(), size, headers, is_file=False)


async def file_sent(request: web.Request, file: BinaryIO, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send a file from its start, like `sent`. A thread reads one piece after the other: the disk may be slow."""

    async def pieces() -> AsyncIterator[bytes]:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece

    return await _sent_by_piece(request, pieces(), os.fstat(file.fileno()).st_size, headers, is_file=True)


async def _sent_by_piece(
    request: web.Request, pieces: AsyncIterator[bytes], size: int, headers: Mapping[str, str], *, is_file: bool
) -> web.StreamResponse:
    if on_made := request.get(ON_MADE):
        on_made(size, is_file=is_file)
    answer = web.StreamResponse(headers=headers)
    answer.content_length = size
    await answer.prepare(request)
    if connection := connection_of(request):
        connection.request_is_answered()
    if request.method != "HEAD":
        async for piece in pieces:
            await answer.write(piece)
    await answer.write_eof()
    return answer


_UNIT: Final = 512
"""Bytes of JSON that are a unit of work: names may be long, and escapes in them take 0.1 µs a byte."""


def units_of(encoded: bytes) -> Iterator[None]:
    """Yield once for each unit of work that it was to make some JSON."""
    return repeat(None, 1 + len(encoded) // _UNIT)


async def encoded_each(slices: Slices, values: Iterable[object]) -> list[bytes]:
    """Return the JSON of each value, made in slices of the loop."""
    encoded: list[bytes] = []

    def units() -> Iterator[None]:
        for value in values:
            encoded.append(json_of(value))
            yield from units_of(encoded[-1])

    await slices.done(Work.REQUESTS, units())
    return encoded


_MOST_ON_LOOP: Final = 2048
"""Bytes of a body that the loop reads: 0.1 ms where each object has two bytes. The body of one rate has fewer."""
_REST: Final = 4
"""Units of work that the rest of a request takes, behind its body: its handler and its answer."""


class BodyReader:
    """Reads JSON of requests and of the broker: small texts in slices of the loop, others in a thread, one at a time.

    Args:
        slices: Bounds the work in one turn of the loop.
    """

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._turn = asyncio.Lock()

    async def read(self, read: Callable[[bytes], T], text: bytes) -> T:
        """Return what `read` makes of a body, and raise what it raises."""
        if len(text) > _MOST_ON_LOOP:
            async with self._turn:  # several threads would share the interpreter with the loop
                return await asyncio.to_thread(read, text)
        has_read: list[T] = []

        def units() -> Iterator[None]:
            has_read.append(read(text))
            yield from units_of(text)
            yield from repeat(None, _REST)

        await self._slices.done(Work.REQUESTS, units())
        return has_read[0]


BODIES: web.AppKey[BodyReader] = web.AppKey("bodies", BodyReader)
"""Reads the bodies of the application's requests, and of the broker's answers."""


async def read_body_of(request: web.Request, read: Callable[[bytes], T], text: bytes) -> T:
    """Return what `read` makes of a request's body; no body holds the loop for long.

    Args:
        request: The request.
        read: Reads the text, perhaps in a thread.
        text: The body.

    Raises:
        Exception: What `read` raises.
    """
    return await request.app[BODIES].read(read, text)


Query = Mapping[str, str]
ONE_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*"
"""A regular expression for printable text, roughly: characters that Unicode has not assigned match as well."""
ANY_TEXT = r"[\s\S]*"
"""Any characters: those of names of clients, which are looked for and not kept."""


def explaining(handler: Handler) -> Handler:
    """Wrap a handler so that errors of a request, `ValueError` included, become answers with the reason."""

    @answering
    @wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except ValueError as error:
            return refusal(400, str(error))

    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A query key whose value is one line, or any text if its pattern is `ANY_TEXT`.

    Args:
        name: The key.
        meaning: The meaning of its value.
        longest: Most characters.
        is_needed: Whether each request must have it.
        words: The allowed values; if empty, any.
        pattern: A regular expression that its values must match.
    """

    name: str
    meaning: str
    longest: int = 2000
    is_needed: bool = False
    words: tuple[str, ...] = ()
    pattern: str = ONE_LINE

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its values."""
        if self.words:
            return {"enum": [*self.words]}
        return {"type": "string", "maxLength": self.longest, "pattern": f"^{self.pattern}$"}

    def read(self, query: Query) -> str:
        """Return the key's value, empty if it is not given.

        Raises:
            ValueError: If the key is needed and missing, or its value is none of its words, or not one line.
        """
        text = query.get(self.name, "")
        if self.is_needed and self.name not in query:
            raise ValueError(f"{self.name}: is needed: {self.meaning}")
        if len(text) > self.longest or not (self.pattern == ANY_TEXT or text.isprintable()):
            raise ValueError(f"{self.name}: write it in one line of at most {self.longest} characters")
        if self.words and self.name in query and text not in self.words:
            raise ValueError(f"{self.name}: {text[:50]!r} is not one of {', '.join(self.words)}")
        return text


_TAGS = re.compile(r'\s*(?:\*|(?:W/)?"[^"]*"(?:\s*,\s*(?:W/)?"[^"]*")*)\s*')
CONDITIONS = (
    Text(name="If-Match", meaning="change it only if its ETag is one of these; * : only if it is set", pattern=".*"),
    Text(name="If-None-Match", meaning="change it only if its ETag is none of these; * : only if it is not set"),
)
"""The headers that make a change conditional."""


def expected_by(request: web.Request, key: PolicyKey) -> Expected | None:
    """Return the condition on a policy under which the request changes it; None: no condition.

    Raises:
        RequestRefusedError: If the headers cannot be read as a condition.
    """
    headers = [(condition.name, request.headers.get(condition.name)) for condition in CONDITIONS]
    given = [(name, value) for name, value in headers if value is not None]
    if not given:
        return None
    (name, value), *more = given
    if more:
        raise RequestRefusedError(400, "send If-Match or If-None-Match, not both")
    if not _TAGS.fullmatch(value):
        raise RequestRefusedError(400, f"{name}: send * or tags in quotes, as an ETag has them")
    is_any = value.strip() == "*"
    tags = None if is_any else frozenset(re.findall(r'(?<!W/)"([^"]*)"', value))
    return Expected(key, tags, is_refused=name == "If-None-Match")


def tagged(answer: web.Response, kept: str | None) -> web.Response:
    """Return an answer with the ETag of a kept body."""
    answer.headers["ETag"] = f'"{tag_of(kept)}"'
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """A query key with two values.

    Args:
        name: The key.
        meaning: The meaning of its values.
        words: The two values; the first is the default.
    """

    name: str
    meaning: str
    words: tuple[str, str]
    is_needed: ClassVar[bool] = False

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its values."""
        return {"enum": [*self.words], "default": self.words[0]}

    def read(self, query: Query) -> str:
        """Return the key's value.

        Raises:
            ValueError: If it is neither of the two.
        """
        text = query.get(self.name, self.words[0])
        if text not in self.words:
            raise ValueError(f"{self.name}: {text[:50]!r} is neither {self.words[1]} nor {self.words[0] or 'empty'}")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A query key whose value is a whole number.

    Args:
        name: The key.
        meaning: The meaning of the number.
        default: The number if the key is not given.
        most: The largest number.
        least: The smallest number, 0 or more.
    """

    name: str
    meaning: str
    default: int
    most: int
    least: int = 1
    is_needed: ClassVar[bool] = False

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its values."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most, "default": self.default}

    def read(self, query: Query) -> int:
        """Return the number.

        Raises:
            ValueError: If the value is no number, or out of bounds.
        """
        text = query.get(self.name, str(self.default))
        is_number = text.isascii() and text.isdigit() and len(text) <= 9
        if not (is_number and self.least <= int(text) <= self.most):
            raise ValueError(f"{self.name}: {text[:50]!r} is not a number from {self.least} to {self.most}")
        return int(text)


QueryKey = Text | Either | Number


def asked(request: web.Request, keys: tuple[QueryKey, ...]) -> Query:
    """Return the query of a request.

    Raises:
        ValueError: If it has a key that is not among `keys`, or one twice, or is not UTF-8.
    """
    _check_encoding(request.rel_url.raw_query_string)
    query, names = request.query, [key.name for key in keys]
    for name in query:
        if name not in names:
            raise ValueError(f"{name[:50]!r} is not known here: ask by {', '.join(names)}")
    if len(query) > len(set(query)):
        raise ValueError("a key occurs twice in the query: give each once")
    return query


def _check_encoding(query: str) -> None:
    """Check that a query is UTF-8: else many names would become one, as broken bytes are read as U+FFFD."""
    try:
        unquote_to_bytes(query).decode()
    except UnicodeError:
        raise ValueError("the query is not UTF-8 in percent encoding") from None


JSON = "application/json"
Content = Mapping[str, Any]
"""Types by media type; empty for no body."""
NOTHING: Content = {}
TEXT: Content = {"text/plain": str}


@dataclass(frozen=True, slots=True)
class Described:
    """An operation of the REST, as the OpenAPI page describes it.

    Args:
        answers: The content of successful answers, by status.
        query: The query keys.
        body: The type of the request body.
        refuses: The operation's own error statuses; those of every request are added.
        needs_body: Whether a request without a body is wrong.
        is_conditional: Whether it takes `CONDITIONS`.
        is_large: Whether its answer grows with the proxy: few such answers are made at once.
    """

    answers: Mapping[int, Content]
    query: tuple[QueryKey, ...]
    body: Any
    refuses: frozenset[int]
    needs_body: bool
    is_conditional: bool
    is_large: bool


DescribedHandler = TypeVar("DescribedHandler", bound=Callable[..., Any])
_ATTRIBUTE = "described"


def described(
    answers: Mapping[int, Any],
    *,
    query: tuple[QueryKey, ...] = (),
    body: Any = NOTHING,
    refuses: Iterable[int] = (),
    needs_body: bool = True,
    is_conditional: bool = False,
    is_large: bool = False,
) -> Callable[[DescribedHandler], DescribedHandler]:
    """Attach a description to a handler; `functools.wraps` copies it to wrappers.

    Args:
        answers: By status, the type of the JSON in it, or `Content`.
        query: As `Described`.
        body: As `Described`; None is JSON's null.
        refuses: As `Described`.
        needs_body: As `Described`.
        is_conditional: As `Described`.
        is_large: As `Described`.
    """
    contents = {status: kind if isinstance(kind, Mapping) else {JSON: kind} for status, kind in answers.items()}

    def attach(handler: DescribedHandler) -> DescribedHandler:
        errors = frozenset({*refuses, 503} if is_large else refuses)
        description = Described(contents, query, body, errors, needs_body, is_conditional, is_large)
        setattr(handler, _ATTRIBUTE, description)
        return handler

    return attach


def description_of(handler: Any) -> Described | None:
    """Return a handler's description; None if it has none."""
    return getattr(handler, _ATTRIBUTE, None)
