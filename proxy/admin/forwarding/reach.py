"""Which addresses may be asked, and how they are reached."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from proxy.brokers.targets import TargetRefusedError, Targets, split_address
from proxy.config.admin_forward import AdminForward
from proxy.config.model import Config, ConfigError
from proxy.files import reopenable
from proxy.token_file import token_in


def allowed_targets(config: Config) -> Targets:
    """The url's, those of `brokers`, and at the url's port the hosts that clients may be connected to."""
    section = config.admin_forward
    host, port = section.address
    clients = (split_address(each)[0] for each in (config.broker, *config.allowed_brokers))
    patterns = (_written(each, port) for each in clients)
    return Targets([(host, port)], (*section.brokers, *patterns), config.allowed_broker_networks)


def address_of(url: URL) -> str:
    """`host:port`."""
    return _written(url.host or "", url.port or 0)


def connector(section: AdminForward, targets: Targets) -> Callable[[], aiohttp.TCPConnector]:
    """Makes what connects. Each request has a connection of its own: one that the broker just closes would cost it.

    Raises:
        ConfigError: If the authority's file cannot be used.
    """
    context = _context(section.ca) if section.has_tls else True
    return lambda: aiohttp.TCPConnector(
        limit=0, force_close=True, resolver=_Resolver(targets), use_dns_cache=False, ssl=context
    )


def broker_token(file: Path) -> str:
    """What Sluice shows to brokers.

    Raises:
        ConfigError: If the file cannot be used.
    """
    try:
        token = token_in(file)
    except OSError as error:
        raise ConfigError([f"admin_forward.token: {file}: cannot be read: {error.strerror}"]) from None
    if not token:
        raise ConfigError([f"admin_forward.token: {file}: must hold one token, in one line"])
    return token


class _Resolver(AbstractResolver):
    """Names lead to addresses that were checked, and to no others."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - of aiohttp's; a broker has what it has
    ) -> list[ResolveResult]:
        """Those of a broker."""
        try:
            found = await self._targets.resolve(_written(host, port))
        except TargetRefusedError as error:
            raise OSError(str(error)) from None
        return [_result(host, *address) for address in found]

    async def close(self) -> None:
        """There is nothing to close."""


def _result(name: str, host: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=name, host=host, port=port, family=family, proto=0, flags=flags)


def _context(ca: Path | None) -> ssl.SSLContext:
    try:
        if ca is None:
            return ssl.create_default_context()
        with reopenable(ca) as name:
            return ssl.create_default_context(cafile=name)
    except ssl.SSLError:
        raise ConfigError([f"admin_forward.ca: {ca}: holds no certificate in PEM"]) from None
    except OSError as error:
        raise ConfigError([f"admin_forward.ca: {ca}: cannot be read: {error.strerror}"]) from None


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
