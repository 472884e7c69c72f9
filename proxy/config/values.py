"""How values are written in the configuration: sizes, durations, rates, addresses, names."""

import functools
import re
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from limiter.networks import IPV6_HOST
from limiter.rates import NANOS_PER_SECOND
from protocol.topic_name import parse_topic
from proxy.blocking.rules import MOST_NAME, read_network
from proxy.brokers.targets import split_address

_MOST_TOKENS = 2**63 - 1
_SIZES = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}
_SPANS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SPANS_NS = {
    "ms": NANOS_PER_SECOND // 1000,
    "s": NANOS_PER_SECOND,
    "min": 60 * NANOS_PER_SECOND,
    "h": 3600 * NANOS_PER_SECOND,
    "d": 86400 * NANOS_PER_SECOND,
}
_NUMBER = r"\d{1,30}(?:\.\d{1,30})?"
"""So short that it is never infinite as a float, nor too long for Python to read as an int."""
_PERIOD = re.compile(rf"^({_NUMBER})?([a-z]+)$")
_NUMBER_AND_WORD = re.compile(rf"^\s*({_NUMBER})\s*([A-Za-z]*)\s*$")


def read_size(value: Any) -> int:
    """`10MB`, `64KiB` or plain bytes, as a number of bytes."""
    size = _number_of_bytes(str(value))
    if size is None:
        raise ValueError("write bytes as 4096, 64KB, 10MB, 1GiB")
    return round(size)


def _number_of_bytes(text: str) -> Fraction | None:
    match = _NUMBER_AND_WORD.match(text)
    if not match or match[2].upper() not in _SIZES:
        return None
    return Fraction(match[1]) * _SIZES[match[2].upper()]


def read_span(value: Any) -> float:
    """`1s`, `500ms` or plain seconds, as seconds."""
    match = _NUMBER_AND_WORD.match(str(value))
    if not match or (match[2] or "s") not in _SPANS:
        raise ValueError("write a duration as 500ms, 1s, 5min, 2h")
    return float(match[1]) * _SPANS[match[2] or "s"]


def read_rate(value: Any) -> tuple[int, int]:
    """`500`, `500/s`, `30/min`, `5/30s`, `10MB/s` as (tokens, nanoseconds of the period)."""
    if type(value) is int and 0 < value <= _MOST_TOKENS:
        return value, NANOS_PER_SECOND
    return _read_rate(str(value))


@functools.lru_cache(maxsize=1024)
def _read_rate(text: str) -> tuple[int, int]:
    """Files of 100,000 topics say the same few things."""
    amount, slash, span = text.partition("/")
    tokens, period_ns = _number_of_bytes(amount), _period_ns(span if slash else "s")
    if tokens is None or not period_ns:
        raise ValueError("write a rate as 500, 500/s, 30/min, 5/30s, 10MB/s")
    if tokens.denominator != 1:
        raise ValueError("a rate is a whole number per period: write 0.5 as 30/min")
    if tokens > _MOST_TOKENS:
        raise ValueError(f"a rate is at most {_MOST_TOKENS}; leave the key out for no limit")
    if tokens <= 0:
        raise ValueError("a rate is above 0; leave the key out for no limit")
    return int(tokens), period_ns


def _period_ns(span: str) -> int | None:
    match = _PERIOD.match(span.replace(" ", ""))
    if not match or match[2] not in _SPANS:
        return None
    return round(Fraction(match[1] or 1) * SPANS_NS[match[2]])


def read_count_rate(value: Any) -> tuple[int, int]:
    """`500`, `500/s`, `30/min`, `5/30s`: a rate of things that are counted and have no unit."""
    if type(value) is not int and not str(value).partition("/")[0].strip().replace(".", "", 1).isdigit():
        raise ValueError("write a rate of what is counted as 500, 500/s, 30/min, 5/30s")
    return read_rate(value)


def _address(value: Any) -> str:
    if split_address(str(value))[1] == 0:
        raise ValueError(f"{value!r} has port 0, where nothing can be reached")
    return str(value)


def _listen_address(value: Any) -> str:
    split_address(str(value))
    return str(value)


Size = Annotated[int, BeforeValidator(read_size)]
Seconds = Annotated[float, BeforeValidator(read_span)]
Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(ip_network)]
PerPeriod = Annotated[tuple[int, int], BeforeValidator(read_rate)]
CountPerPeriod = Annotated[tuple[int, int], BeforeValidator(read_count_rate)]
HostPort = Annotated[str, BeforeValidator(_address)]
ListenAddress = Annotated[str, BeforeValidator(_listen_address)]


def _whole_topic(name: Any) -> str:
    topic = parse_topic(str(name))
    if topic.partition >= 0:
        raise ValueError(f"name the topic {topic.partitioned!r}, not one partition: the limit is each partition's")
    return str(name)


def _namespace(name: Any) -> str:
    if len(str(name).split("/")) != 2 or not all(str(name).split("/")) or "*" in str(name):
        raise ValueError("write a namespace as tenant/namespace")
    return str(name)


def _tenant(name: Any) -> str:
    if not str(name) or "/" in str(name) or ("*" in str(name) and name != "*"):
        raise ValueError("write a tenant as tenant, or * for each other one")
    return str(name)


def network_name(name: Any) -> str:
    """An address or network in its one form."""
    network = read_network(str(name))
    if network.version == 6 and network.prefixlen > IPV6_HOST:
        wide = network.supernet(new_prefix=IPV6_HOST)
        raise ValueError(f"an IPv6 client is limited by its /{IPV6_HOST}: write {wide}")
    return str(network)


def _name(name: str) -> str:
    if not name or len(name) > MOST_NAME or not name.isprintable():
        raise ValueError(f"write a name in one line of 1 to {MOST_NAME} characters")
    return name


TenantName = Annotated[str, BeforeValidator(_tenant)]
NetworkName = Annotated[str, BeforeValidator(network_name)]
WholeTopic = Annotated[str, BeforeValidator(_whole_topic)]
NamespaceName = Annotated[str, BeforeValidator(_namespace)]
Name = Annotated[str, AfterValidator(_name)]
