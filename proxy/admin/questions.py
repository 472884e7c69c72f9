"""What a request asks for, by its query: each key once, and none that is not known."""

from collections.abc import Mapping
from functools import wraps

from aiohttp import web

from proxy.admin.pulsar.answers import Handler, answering
from proxy.admin.refusal import refusal


def explaining(handler: Handler) -> Handler:
    """Turn what is wrong with a request into an answer that says so."""

    @answering
    @wraps(handler)
    async def answer(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except ValueError as error:
            return refusal(400, str(error))

    return answer


def asked(request: web.Request, *keys: str) -> Mapping[str, str]:
    """The query.

    Raises:
        ValueError: If it has a key that is not among `keys`, or one twice.
    """
    query = request.query
    for key in query:
        if key not in keys:
            raise ValueError(f"{key[:50]!r} is not known here: ask by {', '.join(keys)}")
    if len(query) > len(set(query)):
        raise ValueError("a key stands there twice: give each once")
    return query


def number(query: Mapping[str, str], key: str, default: int, most: int) -> int:
    """A number from 1 to `most`.

    Raises:
        ValueError: If it is none.
    """
    text = query.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most):
        raise ValueError(f"{key}: {text[:50]!r} is not a number from 1 to {most}")
    return int(text)
