"""Keeps out web pages that somebody has open in a browser on this machine: they, too, reach loopback.

A page can make its visitor's browser send requests here in two ways.

- From its own site, for another (CSRF). The browser says so in `Sec-Fetch-Site`, or at least in `Origin`. Such a
  request may read, as its page does not get the answer, and change nothing. That holds with locks, too: browsers send
  client certificates whoever asks, and what stands in front of Sluice may add a token to whatever it passes on.
- By its own name, which it lets lead to 127.0.0.1 (DNS rebinding). Then all is one site to the browser, and the page
  reads the answers; but the name stands in `Host`. Behind tokens or TLS this leads nowhere: the page has no token, and
  no certificate here has its name.

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
"""`none`: the user's own doing, not a page's."""
_LOOPBACK = "localhost"
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z._-]+))(?::[0-9]*)?")
_LONGEST = 200
"""Characters of a header that are shown."""


class BrowserGuard:
    """Says which requests no tool would send.

    Args:
        names: By which the address may be asked, in small letters; `localhost` is always one. None: by any.
    """

    def __init__(self, names: Collection[str] | None) -> None:
        self._names = None if names is None else frozenset({_LOOPBACK, *names})

    def check(self, request: web.Request) -> None:
        """Let it pass.

        Raises:
            CallerRefusedError: If it may be the doing of somebody else's page.
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
    """As browsers of 2020 and later tell it, else by the page's address."""
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
    """Host and port of `GET http://HOST:PORT/path`, which counts in place of `Host`."""
    target = request.raw_path
    return () if target.startswith("/") else (_authority(target) or "",)


def _name_in(host: str) -> str:
    """Without port and brackets; empty if it is no host at all."""
    match = _HOST.fullmatch(host)
    return (match[1] or match[2]).lower() if match else ""


def _authority(origin: str) -> str | None:
    """Host and port of a URL; None for `null`, which is nobody's."""
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
