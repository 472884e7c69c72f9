"""Where a broker sends a request on: to the one that owns what it is about, say."""

import aiohttp
from yarl import URL

from proxy.admin.forwarding.outcome import ForwardError, Outcome
from proxy.admin.forwarding.paths import PREFIXES, why_not
from proxy.admin.forwarding.reach import address_of
from proxy.brokers.targets import Targets

MOST_REDIRECTS = 5
_AS_IT_WAS = frozenset({307, 308})
_AS_ANOTHER = frozenset({301, 302, 303})
"""No broker's: Jetty says so of what is not the admin, with whatever method then asks for it."""
_LONGEST_SHOWN = 200


def onward(answer: aiohttp.ClientResponse, targets: Targets) -> URL | None:
    """The next address to ask; None if the answer is one already.

    Raises:
        ForwardError: If it may not be asked: the request carries Sluice's own token.
    """
    location = answer.headers.get("Location")
    if answer.status not in _AS_IT_WAS | _AS_ANOTHER:
        return None
    if not location or answer.status in _AS_ANOTHER:
        raise redirected(f"with status {answer.status}, which cannot be followed")
    url = _joined(answer.url, location)
    if url is None:
        raise redirected(
            f"to {location[:_LONGEST_SHOWN]!r}, which is no {answer.url.scheme} address of a broker's admin"
        )
    if not targets.allows(address_of(url)):
        remedy = "if it is a broker of yours, name it in admin_forward.brokers"
        raise redirected(f"to {address_of(url)}, which is not allowed; {remedy}")
    return url


def redirected(how: str) -> ForwardError:
    """Of a request that the broker sent on to where it cannot go."""
    return ForwardError(502, Outcome.REDIRECT, f"the broker sent the request on {how}")


def _joined(url: URL, location: str) -> URL | None:
    try:
        found = url.join(URL(location, encoded=True))
        is_usable = found.scheme == url.scheme and bool(found.host) and found.raw_path.startswith(PREFIXES)
    except ValueError:
        return None
    return found if is_usable and why_not(found.raw_path_qs) is None else None
