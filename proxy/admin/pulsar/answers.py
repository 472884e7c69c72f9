"""How requests end: in Pulsar's own statuses and reasons."""

from collections.abc import Awaitable, Callable
from functools import wraps

import msgspec
from aiohttp import web

from proxy.admin.doors import CALLER
from proxy.admin.refusal import refusal
from proxy.policies.bodies import BodyError
from proxy.policies.keys import Principal
from proxy.policies.store import StoreError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_JSON = "application/json"


class RequestRefusedError(Exception):
    """A request cannot be done.

    Args:
        status: Of HTTP.
        reason: What the caller is told.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def answering(handler: Handler) -> Handler:
    """Turn what is wrong with a request into an answer."""

    @wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except RequestRefusedError as error:
            return refusal(error.status, str(error))
        except BodyError as error:
            return refusal(400, str(error))
        except RecursionError:
            return refusal(400, "the body is nested too deeply")
        except StoreError as error:
            return refusal(500, f"nothing has changed: {error}")

    return answer


def caller_of(request: web.Request) -> Principal:
    """Who asks, for the audit log."""
    caller = request[CALLER]
    return Principal(caller.name, caller.address)


async def json_text(request: web.Request) -> bytes:
    """The body; empty where there is none, or where it is `null`.

    Raises:
        RequestRefusedError: If it is not said to be JSON. A browser cannot be made to say so for another site.
    """
    text = await request.read()
    if request.content_type != _JSON and text:
        raise RequestRefusedError(415, f"send the body with the header Content-Type: {_JSON}")
    return b"" if text.strip() == b"null" else text


def shown(body: msgspec.Struct | dict[str, str] | list[str] | str) -> web.Response:
    """A value; a bare name is written without quotes, as Pulsar does."""
    text = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    return web.Response(body=text, content_type=_JSON)
