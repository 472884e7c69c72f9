"""Paths of which Sluice serves a part and the broker the rest: dynamic configuration, and rates of replication."""

import re
from typing import Any

import msgspec
from aiohttp import web

from proxy.admin.pages import READING
from proxy.policies.layers import DYNAMIC_KEYS

_CONFIGURATION = "/admin/v2/brokers/configuration"
_RUNTIME = f"{_CONFIGURATION}/runtime"
_ONE_KEY = (f"{_CONFIGURATION}/{{name}}", f"{_CONFIGURATION}/{{name}}/{{value}}")
_REPLICATION = re.compile(r".*/replicatorDispatchRate")
_LISTS: dict[str, Any] = {_CONFIGURATION: list[str], f"{_CONFIGURATION}/values": dict[str, str]}


def is_broker_s_part(request: web.Request) -> bool:
    """Whether it is about what means nothing here: another dynamic key, replication, what a broker was started with."""
    if request.method in READING and request.path == _RUNTIME:
        return True
    resource = request.match_info.route.resource
    served = resource.canonical if resource else ""
    if served in _ONE_KEY:
        return request.match_info["name"] not in DYNAMIC_KEYS
    return _REPLICATION.fullmatch(served) is not None


def list_of_both(request: web.Request) -> Any | None:
    """What the JSON is that shows dynamic configuration of Sluice and broker together; None for any other path."""
    return _LISTS.get(request.path) if request.method in READING else None


def together(ours: str | None, theirs: Any) -> web.Response:
    """Names of both, or values of both. Keys of Sluice's are told as they are set here."""
    own = msgspec.json.decode(ours or "null", type=type(theirs))
    if isinstance(theirs, dict):
        others = [(name, value) for name, value in theirs.items() if name not in DYNAMIC_KEYS]
        both: Any = dict(sorted([*own.items(), *others]))
    else:
        both = sorted({*theirs, *own})
    return web.Response(body=msgspec.json.encode(both), content_type="application/json")
