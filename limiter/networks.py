"""Values by network: the narrowest network that holds an address decides."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Generic, TypeVar

T = TypeVar("T")

IPV6_HOST = 64
"""Bits that tell IPv6 clients apart: whoever has one address there has a whole /64 of them."""
MOST_PARSED = 10_000
"""Addresses of which it is remembered how they are read: streams of one client have the same."""


class Networks(Generic[T]):
    """Looks an address up in as many steps as there are different prefix lengths."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int], dict[int, T]] = {}
        self._lengths: list[tuple[int, int]] = []

    def put(self, network: str, value: T | None) -> None:
        """Set the value of `10.0.0.0/8`, `10.1.2.3`, `2001:db8::/32` …; None takes it back.

        Raises:
            ValueError: If it is neither a network nor an address.
        """
        parsed = ip_network(network)
        key, bits = (parsed.version, parsed.prefixlen), int(parsed.network_address)
        if value is not None:
            self._tables.setdefault(key, {})[bits] = value
        elif key in self._tables:
            self._tables[key].pop(bits, None)
            if not self._tables[key]:
                del self._tables[key]
        self._lengths = sorted(self._tables, reverse=True)

    def find(self, address: str) -> T | None:
        """The value of the narrowest network around `address`; None if there is none, or that is no address."""
        parsed = _parsed(address)
        if parsed is None:
            return None
        bits, most = int(parsed), parsed.max_prefixlen
        for version, length in self._lengths:
            if version != parsed.version:
                continue
            found = self._tables[version, length].get(bits >> (most - length) << (most - length))
            if found is not None:
                return found
        return None

    def copy(self) -> "Networks[T]":
        """The same values, to be changed aside."""
        other = Networks[T]()
        other._tables = {key: dict(table) for key, table in self._tables.items()}
        other._lengths = list(self._lengths)
        return other

    def __bool__(self) -> bool:
        return bool(self._tables)


@lru_cache(MOST_PARSED)
def counted_as(address: str) -> str:
    """Under which name the client at `address` is counted: an IPv4 address is itself, an IPv6 address its /64."""
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((int(parsed), IPV6_HOST), strict=False))
    return str(parsed) if parsed else address


@lru_cache(MOST_PARSED)
def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed
