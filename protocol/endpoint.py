"""Endpoints: where something listens or is reached. The only parser of addresses, and the only way they are written.

    BROKERS = EndpointForm(("pulsar",), example="pulsar://broker:6650")
    BROKERS.parse("[2001:db8::1]:6650")   Endpoint("pulsar", "2001:db8::1", 6650)
    str(endpoint), endpoint.address       "pulsar://[2001:db8::1]:6650", "[2001:db8::1]:6650"

An address is parsed once, where its text comes in: the configuration, an option of a command, a CONNECT, a lookup's
answer. An `EndpointForm` says which schemes are taken there; any other scheme is refused, with the remedy.

Source: https://pulsar.apache.org/docs/client-libraries-java/#connection-urls; RFC 3986, section 3.2.2 (brackets)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple

LONGEST = 300
"""Characters of an address; a name of DNS has 253 at most."""
_MOST_REMEMBERED = 10_000
_HOST_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s\[\]:,/@\0]+))(?::(?P<port>[0-9]{1,5}))?")
"""No NUL: to a resolver a name ends there, so `10.0.0.1\\0.allowed` would match a pattern and lead elsewhere."""


class EndpointError(ValueError):
    """A text is no address of the expected form.

    Attributes:
        problem: The error and the remedy, without the text itself.
    """

    def __init__(self, text: str, problem: str) -> None:
        shown = repr(text) if len(text) <= LONGEST else f"{text[:LONGEST]!r}…"
        super().__init__(f"{shown}: {problem}")
        self.problem = problem


class Endpoint(NamedTuple):
    """An address with its scheme.

    Attributes:
        scheme: `pulsar`, `pulsar+ssl`, `http`, `https`.
        host: A name or an IP address, as it was written; an IPv6 address without brackets.
        port: 0 to listen where the system chooses.
    """

    scheme: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 host in brackets."""
        return _address(self.host, self.port)

    @property
    def name(self) -> str:
        """The host in its normal form (`host_name`), which is also that of certificates.

        A resolver gets `host` as it was written: it searches no domains for a name with a dot at its end.
        """
        return host_name(self.host)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}"


@lru_cache(_MOST_REMEMBERED)
def host_name(host: str) -> str:
    """Return a host in its normal form, which all spellings of the same host share.

    A name is in small letters, without a dot at its end, and in ASCII if it has such a form (IDNA). An IP address is in
    its shortest form.
    """
    try:
        return str(ip_address(host))
    except ValueError:
        name = host.lower().removesuffix(".") or host
    try:
        return name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        return name


def host_port(host: str, port: int) -> str:
    """`host:port`, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_in(address: str) -> str:
    """Return the host of `host:port`, without brackets, as sockets name their peers."""
    return address.rpartition(":")[0].strip("[]")


_address = lru_cache(_MOST_REMEMBERED)(host_port)
"""All sessions with one broker share its text."""


def socket_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`, as sockets name their peers; of any other text an empty host and port 0."""
    port = address.rpartition(":")[2]
    return (host_in(address), int(port)) if port.isdecimal() else ("", 0)


@dataclass(frozen=True, slots=True, eq=False)
class EndpointForm:
    """The written form of addresses of one use.

    Args:
        schemes: The accepted schemes; the first is that of an address without one.
        example: An address of this form, for the errors.
        refused: Schemes that are not taken, each with what to do.
        ports: The port of an address without one, by scheme; of others it must be given.
        is_url: An address without a scheme is refused.
        is_listened_on: Port 0 is taken: the system chooses.
    """

    schemes: tuple[str, ...]
    example: str
    refused: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    is_url: bool = False
    is_listened_on: bool = False

    def parse(self, text: str) -> Endpoint:
        """`HOST:PORT`, `[IPv6]:PORT` or either with a scheme in front, as an endpoint.

        Raises:
            EndpointError: If the text has another form, or a scheme that is not taken.
        """
        if len(text) > LONGEST:  # checked before the text is cached, as clients choose it
            raise EndpointError(text, self.remedy)
        return _parsed(self, text)

    def split(self, url: str) -> tuple[Endpoint, str]:
        """Return the endpoint of a URL, and the path with the query, which may be empty.

        Raises:
            EndpointError: As `parse`.
        """
        scheme, divided, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        return self.parse(f"{scheme}{divided}{host}"), slash + path

    @property
    def remedy(self) -> str:
        """The problem of a text that has not this form, and how to write it."""
        return f"is not host:port; write it as {self.example}"


WEB_SERVICES: Final = EndpointForm(("http", "https"), "http://broker:8080", ports={"http": 80, "https": 443})
"""The form of brokers' admin addresses."""
PLAIN: Final = "pulsar"
TLS: Final = "pulsar+ssl"
"""Schemes of Pulsar's: of brokers, and of the addresses of `listen` (`Endpoint.scheme`)."""
BROKERS: Final = EndpointForm((PLAIN, TLS), "pulsar://broker:6650")
"""The form of brokers' addresses in the configuration, in a client's CONNECT, and in a broker's answer to a lookup."""


@lru_cache(_MOST_REMEMBERED)
def _parsed(form: EndpointForm, text: str) -> Endpoint:
    scheme, divided, bare = text.partition("://")
    if not divided:
        scheme, bare = form.schemes[0], text
    if form.is_url and not divided:
        raise EndpointError(text, f"has no scheme; write it as {form.example}")
    if scheme not in form.schemes:
        remedy = form.refused.get(scheme) or f"{scheme}:// is not taken here; write it as {form.example}"
        raise EndpointError(text, remedy)
    if "," in bare:
        remedy = f"write one, as {form.example}: a name that resolves to all hosts, or the address of a load balancer"
        raise EndpointError(text, f"names several hosts; {remedy}")
    has_query = form.is_url and ("?" in bare or "#" in bare)  # elsewhere a ? may be part of a host's pattern
    match = None if has_query else _HOST_PORT.fullmatch(bare.removesuffix("/"))
    port = -1 if match is None else int(match["port"] or form.ports.get(scheme, -1))
    if match is None or not 0 <= port <= 65535:
        raise EndpointError(text, form.remedy)
    if port == 0 and not form.is_listened_on:
        raise EndpointError(text, "has port 0, at which nothing listens; write the listener's port")
    return Endpoint(scheme, match["v6"] or match["host"], port)
