"""Refuse requests of web pages that are open in a browser on this machine: they, too, reach loopback.

A page can make its visitor's browser send requests here in two ways.

- From its own site, for another (CSRF). The browser marks such a request by `Sec-Fetch-Site`, or at least by `Origin`.
  It may read, as its page does not get the answer, and change nothing. That holds with authentication, too: browsers
  send client certificates for any page, and a proxy in front of Sluice may add a token to every request.
- By its own name, which it lets lead to 127.0.0.1 (DNS rebinding). Then all is one site to the browser, and the page
  reads the answers; but the name stands in `Host`. With tokens or TLS this is of no use: the page has no token, and no
  certificate here has its name.

Tools send neither `Sec-Fetch-Site` nor `Origin`, and name the address by which they were told to reach it.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from proxy.admin.rejections import CallerRefusedError, Rejection

READING = frozenset({"GET", "HEAD"})
"""Methods that change nothing."""
_OWN_SITE = frozenset({"same-origin", "none"})
"""`none`: the user's own request, not a page's."""
_LOOPBACK = "localhost"
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z._-]+))(?::[0-9]*)?")
_LONGEST = 200
"""Most characters of a header that are shown."""


class BrowserGuard:
    """Refuses requests that no tool would send.

    Args:
        names: The names that this address may be asked by, in lower case; `localhost` is always one. None: any name.
    """

    def __init__(self, names: Collection[str] | None) -> None:
        self._names = None if names is None else frozenset({_LOOPBACK, *names})

    def check(self, request: web.Request) -> None:
        """Check that a request may pass.

        Raises:
            CallerRefusedError: If the request may come from another site's page.
        """
        hosts = request.headers.getall("Host", [])
        for host in (*hosts, *_in_target(request)):
            self._check_name(host)
        if request.method not in READING:
            _check_site(request, hosts)

    def _check_name(self, host: str) -> None:
        if self._names is None:
            return
        name = _name_in(host)
        if name not in self._names and not _is_address(name):
            raise CallerRefusedError(
                403,
                Rejection.HOST,
                f"Host: {host[:_LONGEST]!r}: without tokens this address answers to IP addresses, localhost and the "
                "names in admin_access.hosts only; add this one there if it is yours",
            )


def _check_site(request: web.Request, hosts: Collection[str]) -> None:
    """Refuse requests of other sites, by what browsers of 2020 and later send, else by the page's address."""
    sites, origins = (request.headers.getall(header, []) for header in ("Sec-Fetch-Site", "Origin"))
    said = sites or origins
    is_own = all(site in _OWN_SITE for site in sites) if sites else all(_authority(one) in hosts for one in origins)
    if not is_own:
        header = "Sec-Fetch-Site" if sites else "Origin"
        raise CallerRefusedError(
            403,
            Rejection.CROSS_SITE,
            f"{header}: {said[0][:_LONGEST]!r}: a browser sends this for a page of another site, which may not change "
            "anything here",
        )


def _in_target(request: web.Request) -> tuple[str, ...]:
    """Return host and port of `GET http://HOST:PORT/path`, which count in place of `Host`."""
    target = request.raw_path
    return () if target.startswith("/") else (_authority(target) or "",)


def _name_in(host: str) -> str:
    """Return the host without port and brackets, in lower case; empty if it is not valid."""
    match = _HOST.fullmatch(host)
    return (match[1] or match[2]).lower() if match else ""


def _authority(origin: str) -> str | None:
    """Return host and port of a URL; None for `null`."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
