"""What a request asks for, by its query: each key once, and none that is not known.

What a handler reads its query by is what the OpenAPI page shows of it: the keys below.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar
from urllib.parse import unquote_to_bytes

from aiohttp import web

from proxy.admin.pulsar.answers import Handler, answering
from proxy.admin.refusal import refusal

Query = Mapping[str, str]
ONE_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*"
"""A regular expression of what is printable, as far as one can say so: what Unicode has not assigned is not."""


def explaining(handler: Handler) -> Handler:
    """Turn what is wrong with a request into an answer that says so."""

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
    """A key whose value is one line.

    Args:
        name: The key.
        meaning: Of its value.
        longest: Characters.
        is_needed: Whether each request has to have it.
        words: The values that it can have; any if there are none.
        pattern: A regular expression that its values match.
    """

    name: str
    meaning: str
    longest: int = 2000
    is_needed: bool = False
    words: tuple[str, ...] = ()
    pattern: str = ONE_LINE

    def schema(self) -> dict[str, Any]:
        """What its values look like, as JSON Schema."""
        if self.words:
            return {"enum": [*self.words]}
        return {"type": "string", "maxLength": self.longest, "pattern": f"^{self.pattern}$"}

    def read(self, query: Query) -> str:
        """Its value, empty where it is not given.

        Raises:
            ValueError: If it is needed and not there, or not one line.
        """
        text = query.get(self.name, "")
        if self.is_needed and self.name not in query:
            raise ValueError(f"{self.name}: is needed: {self.meaning}")
        if len(text) > self.longest or not text.isprintable():
            raise ValueError(f"{self.name}: write it in one line of at most {self.longest} characters")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """A key with two values.

    Args:
        name: The key.
        meaning: Of its values.
        words: The two; the first is the default.
    """

    name: str
    meaning: str
    words: tuple[str, str]
    is_needed: ClassVar[bool] = False

    def schema(self) -> dict[str, Any]:
        """What its values look like, as JSON Schema."""
        return {"enum": [*self.words], "default": self.words[0]}

    def read(self, query: Query) -> str:
        """Its value.

        Raises:
            ValueError: If it is neither of the two.
        """
        text = query.get(self.name, self.words[0])
        if text not in self.words:
            raise ValueError(f"{self.name}: {text[:50]!r} is neither {self.words[1]} nor {self.words[0]}")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A key whose value is a whole number.

    Args:
        name: The key.
        meaning: Of the number.
        default: Where it is not given.
        most: The largest.
        least: The smallest, 0 or more.
    """

    name: str
    meaning: str
    default: int
    most: int
    least: int = 1
    is_needed: ClassVar[bool] = False

    def schema(self) -> dict[str, Any]:
        """What its values look like, as JSON Schema."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most, "default": self.default}

    def read(self, query: Query) -> int:
        """The number.

        Raises:
            ValueError: If it is none, or out of bounds.
        """
        text = query.get(self.name, str(self.default))
        is_number = text.isascii() and text.isdigit() and len(text) <= 9
        if not (is_number and self.least <= int(text) <= self.most):
            raise ValueError(f"{self.name}: {text[:50]!r} is not a number from {self.least} to {self.most}")
        return int(text)


Key = Text | Either | Number


def asked(request: web.Request, keys: tuple[Key, ...]) -> Query:
    """The query.

    Raises:
        ValueError: If it has a key that is not among `keys`, or one twice, or is not UTF-8.
    """
    _check_encoding(request.rel_url.raw_query_string)
    query, known = request.query, [key.name for key in keys]
    for name in query:
        if name not in known:
            raise ValueError(f"{name[:50]!r} is not known here: ask by {', '.join(known)}")
    if len(query) > len(set(query)):
        raise ValueError("a key stands there twice: give each once")
    return query


def _check_encoding(query: str) -> None:
    """Else many names become one: whatever cannot be decoded is read as U+FFFD."""
    try:
        unquote_to_bytes(query).decode()
    except UnicodeError:
        raise ValueError("the query is not UTF-8 in percent encoding") from None
