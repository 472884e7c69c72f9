"""Other spellings of a path: a broker decodes `%2F` before it picks what answers, and what stands between may, too.

`/admin/v2%2F..%2F../metrics` is the broker's `/metrics`, and `namespaces/acme/shop%2FpublishRate` may be a limit that
Sluice serves. But `%2F` within the name of a topic, a subscription or a role is what pulsar-admin writes.

Source: org.eclipse.jetty.util.URIUtil.decodePath and canonicalPath of Jetty 9.4
"""

import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import quote, unquote

from aiohttp import web
from yarl import URL

_MOST_DECODINGS = 4
_NOT_DECODED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NO_VARIABLE = re.compile(r"[{}]")
"""Variables of routes stand for anything but these and `/`; at a broker, for these, too."""
_NOWHERE = frozenset({"", ".", ".."})


def misread(path: str) -> str | None:
    """What is wrong with a path that somebody may take for another one, or None.

    Args:
        path: As it came, in ASCII, without its query.
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
    """Whether decoding makes of its path one that Sluice serves, and that it is not without."""
    for reading in _readings(request.raw_path.partition("?")[0]):
        url = _as_url(reading)
        if url.path_safe == request.rel_url.path_safe:
            continue
        found = await request.app.router.resolve(request.clone(rel_url=url))
        is_known = found.http_exception is None or found.http_exception.status != web.HTTPNotFound.status_code
        if is_known and not _is_same(found, request.match_info):
            return True
    return False


def last_part(path: str) -> str:
    """The last of a path, as far as it can be decoded."""
    *_, decoded = _readings(path)
    return decoded.rpartition("/")[2].partition(";")[0]


def _readings(path: str) -> Iterator[str]:
    """As it is, and after each decoding until nothing changes."""
    for _ in range(_MOST_DECODINGS + 1):
        yield path
        if (decoded := unquote(path)) == path:
            return
        path = decoded


def _as_url(reading: str) -> URL:
    """What is still encoded stays so: the router, too, takes `%2F` for a part of a name."""
    parts = (_NO_VARIABLE.sub("_", part.partition(";")[0]) for part in reading.split("/"))
    return URL.build(path=quote(_NOT_DECODED.sub("%25", "/".join(parts)), safe="/%"), encoded=True)


def _is_same(found: web.UrlMappingMatchInfo, came: web.UrlMappingMatchInfo) -> bool:
    is_match = found.http_exception is None and came.http_exception is None
    return is_match and found.route.resource is came.route.resource and dict(found) == dict(came)
