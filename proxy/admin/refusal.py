"""The admin address's errors."""

import json
from typing import TypedDict

from aiohttp import web


class Refusal(TypedDict):
    """Every error."""

    reason: str


def refusal(status: int, reason: str) -> web.Response:
    """An error in the form that Pulsar's own admin gives, to the byte: pulsar-admin prints it."""
    text = json.dumps({"reason": reason}, separators=(",", ":"))
    return web.Response(status=status, text=text, content_type="application/json")
