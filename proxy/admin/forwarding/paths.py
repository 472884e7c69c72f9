"""Which requests the broker may get, and which of them change something there.

Source: the @GET, @Path and @DefaultValue annotations in org.apache.pulsar.broker.admin of 4.0.8
"""

import re

from aiohttp import web

from proxy.admin.forwarding.shared import is_broker_s_part
from proxy.admin.forwarding.spellings import last_part, misread
from proxy.admin.pages import READING

PREFIXES = ("/admin/", "/lookup/")
"""All that pulsar-admin asks for begins so."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
_OUTSIDE_ASCII = re.compile(r"[^!-~]")
_NEW_PATHS = ("/admin/v2/", "/admin/v3/", "/lookup/")
_OLD_LIMITS = frozenset({"publishRate", "dispatchRate", "subscriptionDispatchRate", "subscribeRate"})
_CHANGES_BY_GET = re.compile(r"/admin/(?:v2/)?brokers/backlog-quota-check")
_CREATES_BY_GET = "checkAllowAutoCreation"


def is_for_broker(request: web.Request) -> bool:
    """Whether Sluice leaves it to a broker; a path that is served here with a wrong method stays here."""
    if request.method not in _METHODS or not request.raw_path.startswith(PREFIXES):
        return False
    error = request.match_info.http_exception
    return is_broker_s_part(request) or (error is not None and error.status == web.HTTPNotFound.status_code)


def why_not(target: str) -> str | None:
    """What is wrong with a path as it came, with its query, or None.

    A broker takes `publishRate/`, `x/../publishRate` and `publishRate;a=b` for the `publishRate` that Sluice serves:
    who writes so would set a limit at the broker.
    """
    path = target.partition("?")[0]
    if ";" in path or "#" in target or _OUTSIDE_ASCII.search(target):
        return "write ; # and what is not ASCII in percent encoding"
    if wrong := misread(path):
        return wrong
    if not path.startswith(_NEW_PATHS) and last_part(path) in _OLD_LIMITS:
        return "limits of namespaces with a cluster in their name can be set neither here nor through here"
    return None


def changes_something(request: web.Request) -> bool:
    """Whether it takes write access; there are two GETs that do."""
    if request.method not in READING or _CHANGES_BY_GET.fullmatch(request.path):
        return True
    return any(value.lower() == "true" for value in request.query.getall(_CREATES_BY_GET, []))


def is_of_a_page(request: web.Request) -> bool:
    """Whether a browser sends it. Reading, pages may; the doors let them, not knowing of those two GETs."""
    return "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none"
