r"""The PROXY protocol, versions 1 and 2: a balancer names the client of a connection. No I/O.

    b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 6650\r\n"              version 1: one line of text
    signature, command, family, length, addresses, TLVs             version 2: binary

    read_header(first bytes)   None: incomplete; a `Header`; or `ProxyHeaderError`
    write_header(source, …)    the bytes of a version 2 header

A header is a connection's first bytes, in front of TLS too. No client of Pulsar and no TLS client begins like one: read
as the length of a frame, either signature is more than 200 MB.

Source: https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt, sections 2.1 and 2.2
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Final, NamedTuple

from protocol.frames import ProxyHeaderError

MOST_V1: Final = 107
"""Bytes of the longest line of version 1, its end included."""
MOST_V2: Final = 4096
"""Most bytes after the first 16 of version 2. Addresses take up to 216; the rest are TLVs, which Sluice does not read.
The protocol allows 65,535; the longest TLV that balancers send is a client's certificate."""
SIGNATURE_V1: Final = b"PROXY "
SIGNATURE_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"

SocketAddress = tuple[str, int]
"""An IP address and a port."""

_HEAD: Final = Struct(">12sBBH")
"""The signature, version with command, family with transport, bytes that follow."""
_VERSION_2: Final = 0x20
_LOCAL: Final = 0
_PROXY: Final = 1
_UNIX: Final = 3
_DATAGRAM: Final = 2
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_ADDRESSES: Final = {_TCP4: Struct(">4s4sHH"), _TCP6: Struct(">16s16sHH")}
"""Source, destination and their ports, by family with transport."""
_MOST_PORT: Final = 65_535


class Header(NamedTuple):
    """A PROXY protocol header, which precedes a connection's own bytes.

    Attributes:
        size: Its bytes; 0: there is no header.
        version: 1 or 2; 0: there is no header.
        source: The client's address; None: the connection's own address holds.
    """

    size: int
    version: int
    source: SocketAddress | None


NO_HEADER: Final = Header(0, 0, None)


def read_header(data: bytes | bytearray) -> Header | None:
    """Read a header from the first bytes of a connection.

    Args:
        data: All bytes so far; those after the header are not read.

    Returns:
        The header, `NO_HEADER` if the bytes begin otherwise, or None if the next bytes decide.

    Raises:
        ProxyHeaderError: If the protocol forbids the header, or the header is longer than `MOST_V1` or `MOST_V2`.
    """
    if data.startswith(SIGNATURE_V1):
        return _read_v1(data)
    if data.startswith(SIGNATURE_V2):
        return _read_v2(data)
    begun = bytes(data[: len(SIGNATURE_V2)])
    return None if SIGNATURE_V1.startswith(begun) or SIGNATURE_V2.startswith(begun) else NO_HEADER


def write_header(source: SocketAddress | None, destination: SocketAddress | None = None) -> bytes:
    """Return a header of version 2 for a client, or for a connection of the proxy's own.

    Args:
        source: The client's IP address and port. None, and a text that is no IP address, give command LOCAL.
        destination: The address that the client connected to; None or no IP address: an unspecified one and port 0.
    """
    client = _parsed(source)
    if source is None or client is None:
        return _HEAD.pack(SIGNATURE_V2, _VERSION_2 | _LOCAL, 0, 0)
    server, port = _parsed(destination), 0 if destination is None else destination[1]
    if server is None:
        server, port = type(client)(0), 0
    if client.version != server.version:
        client, server = _as_v6(client), _as_v6(server)
    family = _TCP4 if client.version == 4 else _TCP6
    addresses = _ADDRESSES[family].pack(client.packed, server.packed, source[1], port)
    return _HEAD.pack(SIGNATURE_V2, _VERSION_2 | _PROXY, family, len(addresses)) + addresses


def _read_v1(data: bytes | bytearray) -> Header | None:
    end = data.find(b"\r\n", 0, MOST_V1)
    if end < 0:
        if len(data) < MOST_V1:
            return None
        raise ProxyHeaderError("too_long", f"no line end in the first {MOST_V1} bytes of a header of version 1")
    line = bytes(data[:end])
    protocol, *rest = line[len(SIGNATURE_V1) :].split(b" ")
    if protocol == b"UNKNOWN":
        return Header(end + 2, 1, None)
    if protocol not in {b"TCP4", b"TCP6"}:
        raise ProxyHeaderError("unsupported", f"version 1 names {_shown(protocol)}, not TCP4, TCP6 or UNKNOWN")
    if len(rest) != 4:
        raise ProxyHeaderError("malformed", f"version 1 has {len(rest)} values after TCP4 or TCP6, not 4")
    family = IPv4Address if protocol == b"TCP4" else IPv6Address
    source, _ = _address_v1(rest[0], family), _address_v1(rest[1], family)
    port, _ = _port_v1(rest[2]), _port_v1(rest[3])
    return Header(end + 2, 1, (source, port))


def _address_v1(text: bytes, family: type[IPv4Address] | type[IPv6Address]) -> str:
    try:
        return _text(family(text.replace(b"%", b" ").decode("ascii")))  # a zone is of one host's own interfaces
    except ValueError:
        raise ProxyHeaderError("malformed", f"version 1 has {_shown(text)} where an IP address belongs") from None


def _port_v1(text: bytes) -> int:
    port = int(text) if text.isdigit() and len(text) <= 5 else _MOST_PORT + 1
    if port > _MOST_PORT or (text[:1] == b"0" and text != b"0"):
        raise ProxyHeaderError("malformed", f"version 1 has {_shown(text)} where a port belongs")
    return port


def _read_v2(data: bytes | bytearray) -> Header | None:
    if len(data) < _HEAD.size:
        return None
    _, command, family, length = _HEAD.unpack_from(data)
    if command & 0xF0 != _VERSION_2:
        raise ProxyHeaderError("unsupported", f"version {command >> 4}; versions 1 and 2 are read")
    if command & 0x0F > _PROXY:
        raise ProxyHeaderError("unsupported", f"version 2 has command {command & 0x0F}, not LOCAL (0) or PROXY (1)")
    if length > MOST_V2:
        raise ProxyHeaderError(
            "too_long", f"version 2 announces {length} bytes, at most {MOST_V2} are taken: send fewer TLVs"
        )
    addresses = None if command & 0x0F == _LOCAL else _addresses(family, length)
    if len(data) < _HEAD.size + length:
        return None
    source = None
    if addresses is not None:
        host, _, port, _ = addresses.unpack_from(data, _HEAD.size)
        source = _text(ip_address(host)), port
    return Header(_HEAD.size + length, 2, source)


def _addresses(family: int, length: int) -> Struct | None:
    """Return the layout of the addresses of command PROXY; None for families whose addresses are not used."""
    if family >> 4 > _UNIX or family & 0x0F > _DATAGRAM:
        raise ProxyHeaderError("unsupported", f"version 2 has family and transport 0x{family:02x}, which mean nothing")
    addresses = _ADDRESSES.get(family)
    if addresses is not None and length < addresses.size:
        raise ProxyHeaderError("malformed", f"version 2 has {length} bytes where addresses take {addresses.size}")
    return addresses


def _text(address: IPv4Address | IPv6Address) -> str:
    """Return an address as sockets name their peers, `::ffff:192.0.2.7` among them."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(address) if mapped is None else f"::ffff:{mapped}"


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("ascii", "backslashreplace"))


def _parsed(address: SocketAddress | None) -> IPv4Address | IPv6Address | None:
    try:
        return None if address is None else ip_address(address[0].partition("%")[0])
    except ValueError:
        return None


def _as_v6(address: IPv4Address | IPv6Address) -> IPv6Address:
    return address if isinstance(address, IPv6Address) else IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
