"""The requests that a token for some tenants allows: those about these tenants, and no others.

A path is refused unless this module knows that it is about one tenant, and that is one of the token's. So a new path is
closed to such tokens until it is added here. `why_outside` decides on all paths, and `why_not_at_broker` on those that
go to a broker.
"""

import re
from collections.abc import Callable, Collection, Mapping

from aiohttp import web

from limiter.levels import CLIENT_PARTS, Setting
from protocol.printable import printable
from proxy.admin.browser_guard import READING
from proxy.config.sources import cut
from proxy.policies.keys import tenant_of

PROBES = frozenset({"/healthz", "/readyz"})
CONSOLE_PATHS = frozenset({"/console", "/console/console.css", "/console/console.js"})
"""The page of the console and its parts, which have no data: the page asks the REST with the token of its user."""
ALWAYS_OPEN = PROBES | CONSOLE_PATHS
"""Paths that need no token: probes have none, and a browser sends none where it opens a page."""
OF_NOBODY = ALWAYS_OPEN | {"/sluice/openapi.json", "/sluice/caller"}
"""Paths without any tenant's data."""
STREAMS = "/sluice/streams"
KICK = "/sluice/kick"
OF_CALLER = frozenset({STREAMS, "/sluice/limiters", "/sluice/limiters/history", "/sluice/limiters/value", KICK})
"""Paths that show callers, or end, what is of their tenants only, so that no tenant need be named."""
_MOST_LISTED = 20
_SHARED = ("/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup", "/sluice/tenants/{tenant}/resourcegroup")
"""The resource group of a namespace or tenant: an attachment takes from the limit of other members."""


def why_outside(request: web.Request, tenants: Collection[str]) -> str | None:
    """Return why a request is not about these tenants; None if it is, or if it is about no tenant."""
    resource = request.match_info.route.resource
    if resource is None:
        return why_not_at_broker(request, tenants)
    path = resource.canonical
    if path in OF_NOBODY or (path in OF_CALLER and "tenant" not in request.query):
        return None
    asked, remedy = _asked(request, path)
    if asked and all(tenant in tenants for tenant in asked):
        return None
    others = {tenant for tenant in asked if tenant is not None and tenant not in tenants}
    if others:
        return f"this token is for {_listed(tenants)}, and not for {_listed(others)}"
    return f"this token is for {_listed(tenants)}: {remedy}"


def _asked(request: web.Request, path: str) -> tuple[Collection[str | None], str]:
    """Return the tenants that a request is about, None for others; and the remedy for the caller."""
    if path in _QUERIES:
        find, remedy = _QUERIES[path]
        return find(request), remedy
    if path.startswith(_SHARED) and request.method not in READING:
        return [None], "resource groups are shared with other tenants"
    if "tenant" in request.match_info:
        return [request.match_info["tenant"]], ""
    return [None], "this path is about all tenants, and takes an operator's token"


def _of_streams(request: web.Request) -> list[str | None]:
    return [*request.query.getall("tenant", [])]


def _of_limit(request: web.Request) -> list[str | None]:
    settings, names = request.query.getall("setting", []), request.query.getall("name", [])
    return [_tenant_of(setting, name) for setting in settings for name in names]


def _tenant_of(setting: str, name: str) -> str | None:
    try:
        return tenant_of(Setting(setting), name)
    except ValueError:
        return None


def _of_explained(request: web.Request) -> list[str | None]:
    """Return the tenant of the topic, or None: limits of roles and addresses belong to no tenant."""
    if any(part.word in request.query for part in CLIENT_PARTS if not part.is_of_topic):
        return [None]
    return [_tenant_of(Setting.TOPIC, name) for name in request.query.getall("topic", [])]


_QUERIES: Mapping[str, tuple[Callable[[web.Request], list[str | None]], str]] = {
    STREAMS: (_of_streams, "write ?tenant=…, or leave it out"),
    KICK: (_of_streams, "write ?tenant=…, or leave it out"),
    "/sluice/limits": (
        _of_limit,
        (
            "name one limit of a tenant, a namespace, a topic or a subscription "
            "(SUB@persistent://TENANT/NAMESPACE/TOPIC): ?direction=…&setting=…&name=…"
        ),
    ),
    "/sluice/explain": (_of_explained, "ask for one topic of its tenants, and for no role and address"),
}
"""Paths whose query names their tenants."""
_TENANT = r"(?P<tenant>[A-Za-z0-9_\-=:.]+)"
_AT_BROKER = tuple(
    re.compile(pattern)
    for pattern in (
        rf"/admin/v2/tenants/{_TENANT}",
        rf"/admin/v2/(?:namespaces|persistent|non-persistent|schemas)/{_TENANT}(?:/.*)?",
        rf"/lookup/v2/topic/(?:persistent|non-persistent)/{_TENANT}/.+",
    )
)
"""Paths of a broker with the tenant at a known place, without percent signs: every server reads it alike."""
_OF_OTHERS = re.compile(r"/admin/v2/namespaces/[^/]+/antiAffinity(?:/|$)|.*/shadowTopics", re.IGNORECASE)
"""Paths that name a cluster where others name a tenant, or bodies with topics of any tenant."""
_SHARED_AT_BROKER = re.compile(
    r"/admin/v2/(?:namespaces|persistent/[^/]+/[^/]+|non-persistent/[^/]+/[^/]+)/.*"
    r"/(?:resourcegroup|antiAffinity|(?:remove)?offloadPolicies|bookieAffinity)(?:/.*)?",
    re.IGNORECASE,
)
"""Paths that attach a namespace or a topic to what tenants share: groups, brokers, bookies, places of offloaded
ledgers."""
_ONE_NAMESPACE = re.compile(r"/admin/v2/namespaces/[^/]+/[^/]+/?")
_ONE_TOPIC = re.compile(r"/admin/v2/(?:persistent|non-persistent)/[^/]+/[^/]+/[^/]+/?")
_PROPERTIES = re.compile(r"/admin/v2/(?:persistent|non-persistent)/.*/properties/?", re.IGNORECASE)
_PLAIN = re.compile(r"application/json(?:; ?charset=utf-8)?", re.IGNORECASE)
"""The only content type of such holders. By another one the same body may be a topic's properties."""


def why_not_at_broker(request: web.Request, tenants: Collection[str]) -> str | None:
    """Return why a broker does not get a request of a holder of a token for these tenants; None if it does.

    A topic's properties may name a topic of another tenant, whose messages it then has (PULSAR.SHADOW_SOURCE); so such
    holders make topics without. A namespace's policies may name a resource group, which other tenants are in; so they
    make namespaces without.
    """
    path = request.raw_path.partition("?")[0]
    matches = [match for pattern in _AT_BROKER if (match := pattern.fullmatch(path))]
    is_own = bool(matches) and all(match["tenant"] in tenants for match in matches)
    if not is_own or _OF_OTHERS.fullmatch(request.path) or _OF_OTHERS.match(request.path):
        return f"this token is for {_listed(tenants)}: a broker gets paths of theirs only"
    if path.startswith("/admin/v2/tenants/") and request.method not in READING:
        return f"this token is for {_listed(tenants)}, and changes no tenant itself"
    return None if request.method in READING else _why_not_changed(request, path)


def _why_not_changed(request: web.Request, path: str) -> str | None:
    """Return why such a holder may not change its own namespace or topic by this request; None if it may."""
    if _SHARED_AT_BROKER.fullmatch(request.path):
        return "a token for some tenants attaches nothing to what is shared with other tenants"
    if request.body_exists and not all(map(_PLAIN.fullmatch, request.headers.getall("Content-Type", [""]))):
        return "a token for some tenants sends bodies as application/json: name that Content-Type, once"
    is_made = request.method == "PUT" and request.body_exists
    if is_made and _ONE_NAMESPACE.fullmatch(path):
        return "a token for some tenants makes namespaces without policies: one would name a resource group of others"
    if (is_made and _ONE_TOPIC.fullmatch(path)) or _PROPERTIES.fullmatch(request.path):
        return "a token for some tenants makes topics without properties: one of them would name a topic of any tenant"
    return None


def _listed(tenants: Collection[str]) -> str:
    shown = [cut(printable(tenant)) for tenant in sorted(tenants)]
    more = f" and {len(shown) - _MOST_LISTED} more" if len(shown) > _MOST_LISTED else ""
    return f"the tenants {', '.join(shown[:_MOST_LISTED])}{more}" if len(shown) > 1 else f"the tenant {shown[0]}"
