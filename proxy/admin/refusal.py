"""The admin address's errors."""

from aiohttp import web


def refusal(status: int, reason: str) -> web.Response:
    """An error in the form that Pulsar's own admin gives."""
    return web.json_response({"reason": reason}, status=status)
