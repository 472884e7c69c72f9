"""The guard against web pages: a page in a browser on this machine can also reach loopback."""

from collections.abc import Collection
from ipaddress import ip_address

from aiohttp import web

from protocol.endpoint import WEB_SERVICES, Endpoint, EndpointError
from proxy.admin.refusals import CallerRefusedError, RefusalCause

READING = frozenset({"GET", "HEAD"})
"""Methods that change nothing."""
_OWN_SITE = frozenset({"same-origin", "none"})
"""`none`: the user's own doing, not a page's."""
_LOOPBACK = "localhost"
_LONGEST = 200
"""Characters of a header that are shown."""


class BrowserGuard:
    """Refuses requests that a browser sends for another site's page, and no tool would send.

    Args:
        names: The allowed host names, in small letters; `localhost` is always allowed. None: any name.
    """

    def __init__(self, names: Collection[str] | None) -> None:
        self._names = None if names is None else frozenset({_LOOPBACK, *names})

    def check(self, request: web.Request) -> None:
        """Check that a request is no web page's doing.

        Raises:
            CallerRefusedError: If it may be another site's page's doing.
        """
        hosts = request.headers.getall("Host", [])
        for host in (*hosts, *_in_target(request)):
            self._check_name(host)
        if request.method not in READING:
            _check_site(request, hosts)

    def _check_name(self, host: str) -> None:
        if self._names is None:
            return
        endpoint = _endpoint(host)
        name = endpoint.name if endpoint else ""
        if name not in self._names and not _is_address(name):
            raise CallerRefusedError(
                403,
                RefusalCause.HOST,
                f"Host: {host[:_LONGEST]!r}: without tokens this address answers to IP addresses, localhost and the "
                "names in admin_access.hosts only; add this one there if it is yours",
            )


def _check_site(request: web.Request, hosts: Collection[str]) -> None:
    """Refuse a request of another site's page: by the browser's own word (since 2020), else by the page's address."""
    sites, origins = (request.headers.getall(header, []) for header in ("Sec-Fetch-Site", "Origin"))
    values = sites or origins
    is_own = all(site in _OWN_SITE for site in sites) if sites else all(_is_ours(each, hosts) for each in origins)
    if not is_own:
        header = "Sec-Fetch-Site" if sites else "Origin"
        raise CallerRefusedError(
            403,
            RefusalCause.CROSS_SITE,
            f"{header}: {values[0][:_LONGEST]!r}: a browser sends this for another site's page, which may not change "
            "anything here",
        )


def _in_target(request: web.Request) -> tuple[str, ...]:
    """Host and port of `GET http://HOST:PORT/path`, which counts in place of `Host`."""
    target = request.raw_path
    if target.startswith("/"):
        return ()
    endpoint = _endpoint(target)
    return (endpoint.address if endpoint else "",)


def _is_ours(origin: str, hosts: Collection[str]) -> bool:
    """Return whether a page's origin is this address by one of its host names; the origin `null` is not."""
    page = _endpoint(origin) if "://" in origin else None
    return page is not None and any(_endpoint(f"{page.scheme}://{host}") == page for host in hosts)


def _endpoint(url: str) -> Endpoint | None:
    """The endpoint of a URL or of a `Host`; None if it is neither."""
    try:
        return WEB_SERVICES.split(url)[0] if "://" in url else WEB_SERVICES.parse(url)
    except EndpointError:
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
