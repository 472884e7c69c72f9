"""The paths that the broker may get, those that change something there, and those that Sluice answers in part.

A broker decodes `%2F` before it picks a resource, as may proxies in between. So `/admin/v2%2F..%2F../metrics` is the
broker's `/metrics`, and `namespaces/acme/shop%2FpublishRate` may be a limit that Sluice serves. But pulsar-admin itself
writes `%2F` within the name of a topic, a subscription or a role.

Source: org.eclipse.jetty.util.URIUtil.decodePath and canonicalPath of Jetty 9.4; the @GET, @Path and @DefaultValue
annotations in org.apache.pulsar.broker.admin of 4.0.8
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

from aiohttp import web
from yarl import URL

from proxy import typed_json
from proxy.admin.browser_guard import READING
from proxy.admin.json_text import json_of
from proxy.bulk import in_order
from proxy.policies.bodies import BodyError, requested_body
from proxy.policies.layers import DYNAMIC_KEYS

_CONFIGURATION = "/admin/v2/brokers/configuration"
_RUNTIME = f"{_CONFIGURATION}/runtime"
_ONE_KEY = (f"{_CONFIGURATION}/{{name}}", f"{_CONFIGURATION}/{{name}}/{{value}}")
_REPLICATION = re.compile(r".*/replicatorDispatchRate")
_LISTS: dict[str, Any] = {_CONFIGURATION: list[str], f"{_CONFIGURATION}/values": dict[str, str]}


def is_broker_s_part(request: web.Request) -> bool:
    """Return whether a path is about the broker alone: other dynamic keys, replication, start-up values."""
    if request.method in READING and request.path == _RUNTIME:
        return True
    resource = request.match_info.route.resource
    served = resource.canonical if resource else ""
    if served in _ONE_KEY:
        return request.match_info["name"] not in DYNAMIC_KEYS
    return _REPLICATION.fullmatch(served) is not None


def list_of_both(request: web.Request) -> Any | None:
    """Return the JSON type of a list that Sluice and the broker answer together; None for any other path."""
    return _LISTS.get(request.path) if request.method in READING else None


def together(ours: str | None, kind: Any, theirs: bytes) -> bytes:
    """Return the JSON of the names, or the values, of both. Sluice's keys have the values that are set here.

    Args:
        ours: Sluice's list.
        kind: The JSON type of both, see `list_of_both`.
        theirs: The broker's list.

    Raises:
        msgspec.DecodeError: If the broker's list is not of this type.
        UnicodeDecodeError: If it is not UTF-8.
    """
    broker_list, own = typed_json.decode(theirs, kind), typed_json.decode(ours or "null", kind)
    if isinstance(broker_list, dict):
        others = [(name, value) for name, value in broker_list.items() if name not in DYNAMIC_KEYS]
        return json_of(dict(in_order([*own.items(), *others])))
    return json_of([*in_order({*broker_list, *own})])


_MOST_DECODINGS = 4
_NOT_DECODED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NO_VARIABLE = re.compile(r"[{}]")
"""Characters that variables of routes do not match (like `/`), although a broker's variables do."""
_NOWHERE = frozenset({"", ".", ".."})


def misread(path: str) -> str | None:
    """Return the mistake in a path that a broker or proxy may read as another path; None if there is none.

    Args:
        path: The path as it came, in ASCII, without its query.
    """
    if _NOT_DECODED.search(path):
        return "write % as %25"
    *_, decoded = _readings(path)
    if unquote(decoded) != decoded:
        return f"write the path without more than {_MOST_DECODINGS} layers of percent encoding"
    if "\\" in decoded or any(unicodedata.category(character) == "Cc" for character in decoded):
        return "write the path without backslashes and control characters, encoded or not"
    parts = decoded.split("/")[1:]
    if any(part.partition(";")[0] in _NOWHERE for part in parts) or parts[-1].endswith(";"):
        return "write the path without empty parts, . and .., and without / or ; at its end, encoded or not"
    return None


async def is_served_decoded(request: web.Request) -> bool:
    """Return whether a decoded form of the path is one that Sluice serves, unlike the path itself."""
    for reading in _readings(request.raw_path.partition("?")[0]):
        url = _as_url(reading)
        if url.path_safe == request.rel_url.path_safe:
            continue
        match = await request.app.router.resolve(request.clone(rel_url=url))
        is_served = match.http_exception is None or match.http_exception.status != web.HTTPNotFound.status_code
        if is_served and not _is_same(match, request.match_info):
            return True
    return False


def last_part(path: str) -> str:
    """Return the last part of a path, decoded as far as possible."""
    *_, decoded = _readings(path)
    return decoded.rpartition("/")[2].partition(";")[0]


def _readings(path: str) -> Iterator[str]:
    """Yield a path as it is, and after each decoding, until nothing changes."""
    for _ in range(_MOST_DECODINGS + 1):
        yield path
        if (decoded := unquote(path)) == path:
            return
        path = decoded


def _as_url(reading: str) -> URL:
    """Return a reading as URL. Encoded characters stay encoded, as the router takes `%2F` for a part of a name."""
    parts = (_NO_VARIABLE.sub("_", part.partition(";")[0]) for part in reading.split("/"))
    return URL.build(path=quote(_NOT_DECODED.sub("%25", "/".join(parts)), safe="/%"), encoded=True)


def _is_same(match: web.UrlMappingMatchInfo, other: web.UrlMappingMatchInfo) -> bool:
    are_served = match.http_exception is None and other.http_exception is None
    return are_served and match.route.resource is other.route.resource and dict(match) == dict(other)


PREFIXES = ("/admin/", "/lookup/")
"""Prefixes of all paths that pulsar-admin uses."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
_OUTSIDE_ASCII = re.compile(r"[^!-~]")
_NEW_PATHS = ("/admin/v2/", "/admin/v3/", "/lookup/")
_OLD_LIMITS = frozenset({"publishRate", "dispatchRate", "subscriptionDispatchRate", "subscribeRate"})
_CHANGES_BY_GET = re.compile(r"/admin/(?:v2/)?brokers/backlog-quota-check")
_CREATES_BY_GET = "checkAllowAutoCreation"


def is_for_broker(request: web.Request) -> bool:
    """Return whether a path is left to a broker; one that is served here with a wrong method stays here."""
    if request.method not in _METHODS or not request.raw_path.startswith(PREFIXES):
        return False
    error = request.match_info.http_exception
    return is_broker_s_part(request) or (error is not None and error.status == web.HTTPNotFound.status_code)


def why_not(target: str) -> str | None:
    """Return the mistake in a request's path and query; None if there is none.

    A broker takes `publishRate/`, `x/../publishRate` and `publishRate;a=b` for the `publishRate` that Sluice serves:
    such a request would set a limit at the broker.
    """
    path = target.partition("?")[0]
    if ";" in path or "#" in target or _OUTSIDE_ASCII.search(target):
        return "write ; # and what is not ASCII in percent encoding"
    if wrong := misread(path):
        return wrong
    if not path.startswith(_NEW_PATHS) and last_part(path) in _OLD_LIMITS:
        return "limits of namespaces with a cluster in their name can be set neither here nor through here"
    return None


_NEW_NAMESPACE = re.compile(r"/admin/(?:v2/namespaces/[^/]+/[^/]+|namespaces/[^/]+/[^/]+/[^/]+)")
_RATES = ("publishMaxMessageRate", "topicDispatchRate", "subscriptionDispatchRate", "clusterDispatchRate")
_LIMITS = (*_RATES, "clusterSubscribeRate", "resource_group_name")


def makes_namespace(method: str, target: str) -> bool:
    """Return whether a request makes a namespace: of all bodies that go to a broker only this one has rates."""
    *_, path = _readings(target.partition("?")[0])
    return method == "PUT" and _NEW_NAMESPACE.fullmatch(path) is not None


def limits_in(body: bytes) -> str | None:
    """Return why a new namespace's body is refused: it has limits, which the broker would hold; None if it has none.

    Rates of replication are the broker's.

    Source: createNamespace of org.apache.pulsar.broker.admin.v1.Namespaces and v2.Namespaces;
    org.apache.pulsar.common.policies.data.Policies
    """
    try:
        policies = requested_body(body, object, "namespace's policies", "send JSON in UTF-8")
    except BodyError as error:
        return str(error)
    except RecursionError:
        return "the body is nested too deeply"
    names = [name for name in _LIMITS if policies.get(name)] if isinstance(policies, dict) else []
    if not names:
        return None
    return f"{', '.join(names)}: make the namespace without limits, and set them by its publishRate, dispatchRate, …"


def changes_something(request: web.Request) -> bool:
    """Return whether a request takes write access; two GETs do."""
    if request.method not in READING or _CHANGES_BY_GET.fullmatch(request.path):
        return True
    return any(value.lower() == "true" for value in request.query.getall(_CREATES_BY_GET, []))


def is_of_a_page(request: web.Request) -> bool:
    """Return whether a browser sends the request for a page.

    The browser guard lets pages read, as it does not know of the two kinds of GET that change something.
    """
    return "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none"
