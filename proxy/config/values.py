"""Values of the configuration, read from text: sizes, durations, rates, addresses, names."""

import functools
import re
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any

from annotated_types import Le
from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from limiter.levels import LEVEL_OF_WORD, LEVELS, PARTITIONED_TOPIC, TOPIC
from limiter.names import EACH, IPV6_HOST, form_of
from limiter.token_bucket import NANOS_PER_SECOND
from protocol.endpoint import (
    BROKERS,
    LONGEST,
    PLAIN,
    TLS,
    WEB_SERVICES,
    Endpoint,
    EndpointError,
    EndpointForm,
    host_name,
)
from protocol.topic_name import is_entity, parse_topic
from proxy.block_rules import MOST_NAME, read_network, read_role

_MOST = 2**63 - 1
"""Tokens, messages, bytes: what reads the access log has no larger integers."""
_LONGEST_NUMBER = 80
"""Characters of a size, duration, rate or count. Whatever is longer is refused before any pattern looks at it."""
LONGEST_PART = 1024
"""Characters of each part of a name: of a tenant, of a namespace without its tenant, of a topic without both."""
_LONGEST_TOPIC = 3 * LONGEST_PART + len("non-persistent:////")
_MOST_SHOWN = 40
"""Characters of a value that is too long in its error."""
LONGEST_PERIOD_S = 2**31 - 1
"""Pulsar's ratePeriodInSecond is a signed 32-bit integer: 68 years at most."""
_SIZES = {
    "": 1,
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
"""Units of bytes. A small b is a unit of bits elsewhere: `10Mb/s` would be an eighth of `10MB/s`, and is refused."""
_LIKE_SIZE = re.compile(r"([kmg])i?(?:b|bit|bits|bps|byte|bytes)?", re.IGNORECASE)
_WRITTEN_UNITS = ("GiB", "GB", "MiB", "MB", "KiB", "KB")
"""The units that sizes are written with, largest first."""
SPANS_NS = {
    "ms": NANOS_PER_SECOND // 1000,
    "s": NANOS_PER_SECOND,
    "min": 60 * NANOS_PER_SECOND,
    "h": 3600 * NANOS_PER_SECOND,
    "d": 86400 * NANOS_PER_SECOND,
}
"""Units of durations and periods, in nanoseconds."""
_AS_SIZE = "write bytes as 4096, 64KB, 10MB, 1GiB"
_AS_SPAN = "write a duration as 500ms, 1s, 5min, 2h"
_AS_RATE = "write a rate as 500, 500/s, 30/min, 5/30s, 10MB/s"
_AS_COUNT_RATE = "write a rate of what is counted as 500, 500/s, 30/min, 5/30s"
_CLIENTS = EndpointForm((PLAIN, TLS), "0.0.0.0:6650", is_listened_on=True)
"""The listening addresses for clients."""
_ADMIN = EndpointForm(
    ("http",), "127.0.0.1:8080", {"https": "write HOST:PORT; admin_access.tls makes it HTTPS"}, is_listened_on=True
)
"""The listening addresses of the admin REST and of metrics."""
_SERVICE_URL = replace(BROKERS, is_url=True)
_WEB_SERVICE_URL = replace(WEB_SERVICES, is_url=True)
_COLLECTOR_URL = replace(_WEB_SERVICE_URL, example="http://collector:4318", ports={"http": 4318, "https": 4318})
_NUMBER = r"(?:0|[1-9][0-9]{0,29})(?:\.[0-9]{1,30})?"
"""A number in decimal digits. It has so few that it is never infinite as a float, nor too long for Python's `int`.

It has no zero before it: `010` is eight to YAML 1.1, and ten to YAML 1.2.
"""
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_ODD = re.compile(r"[+-]?[0-9][0-9a-fA-F_,.:xo']*")
"""Numbers as other programs write them: 0x1F, 1_000, 1,000, 5:30, 010."""
_PLAINLY = "write numbers in decimal digits alone, as 1000, without 0 before them"
_TRUTHS = {"true": True, "false": False}
_AMOUNT = re.compile(_NUMBER)
_PERIOD = re.compile(rf"({_NUMBER})?([a-z]+)")
_PROXY_ID = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,99}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_PLAIN_NUMBER = re.compile(rf"{_NUMBER}(?![0-9_,:.xo'])")
_NUMBER_AND_WORD = re.compile(rf"({_NUMBER}) ?([A-Za-z]*)")


def _short(value: Any, longest: int = _LONGEST_NUMBER) -> Any:
    """A value as it is, unless it is longer than any of its kind.

    Raises:
        ValueError: If it is, with its beginning.
    """
    text = str(value)
    if len(text) > longest:
        raise ValueError(f"{text[:_MOST_SHOWN] + '…'!r} has {len(text)} characters; at most {longest} belong here")
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, bool):  # an int to Python
        raise PydanticKnownError("int_type")
    if not isinstance(value, str):
        return value
    value = _short(value).strip()
    if _WHOLE.fullmatch(value):
        return int(value)
    if _ODD.fullmatch(value):
        raise ValueError(f"an integer belongs here; {_PLAINLY}")
    raise PydanticKnownError("int_parsing")


def _flag(value: Any) -> bool:
    """`true` or `false`; `yes`, `on` and `1` are names elsewhere, and refused here."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        truth = _TRUTHS.get(value.lower())
        if truth is None:
            raise PydanticKnownError("bool_parsing")
        return truth
    raise PydanticKnownError("bool_type")


def _text(value: Any) -> str:
    """A name as it is written. JSON's numbers and truth values have no text of their own: 1.10 is 1.1 there."""
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    return value


def _line(value: Any, remedy: str) -> str:
    """The text of a size, duration or rate, without the blanks around it."""
    try:
        return str(_short(value)).strip()
    except ValueError as error:
        raise ValueError(f"{error}; {remedy}") from None


def _wanted(value: Any, remedy: str) -> str:
    """The remedy for a value that is no size, duration or rate."""
    amount, slash, span = str(value).strip().partition("/")
    match = _NUMBER_AND_WORD.fullmatch(amount.rstrip())
    like = match and match[2] not in _SIZES and _LIKE_SIZE.fullmatch(match[2])
    if match and like and remedy in {_AS_SIZE, _AS_RATE}:
        forms = " or ".join(f"{match[1]}{like[1].upper()}{unit}{slash}{span}" for unit in ("B", "iB"))
        return f"{match[2]!r} is no unit of bytes, and a small b may be bits: write {forms}"
    is_odd = isinstance(value, str) and _ODD.match(value) and not _PLAIN_NUMBER.match(value)
    return f"{remedy}; {_PLAINLY}" if is_odd else remedy


def read_size(value: Any) -> int:
    """`10MB`, `64KiB` or plain bytes, as a number of bytes."""
    size = _number_of_bytes(_line(value, _AS_SIZE))
    if size is None:
        raise ValueError(_wanted(value, _AS_SIZE))
    if size > _MOST:
        raise ValueError(f"a size is at most {_MOST} bytes")
    return round(size)


def size_text(size: int) -> str:
    """Return a number of bytes as `read_size` takes it, in the largest unit that fits: `64KiB`, `10MB`, `1001`."""
    unit = next((unit for unit in _WRITTEN_UNITS if size % _SIZES[unit] == 0), "") if size else ""
    return f"{size // _SIZES[unit]}{unit}"


def _number_of_bytes(text: str) -> Fraction | None:
    match = _NUMBER_AND_WORD.fullmatch(text)
    if not match or match[2] not in _SIZES:
        return None
    return Fraction(match[1]) * _SIZES[match[2]]


def read_span(value: Any) -> float:
    """`1s`, `500ms` or plain seconds, as seconds."""
    text = _line(value, _AS_SPAN)
    match = _NUMBER_AND_WORD.fullmatch(text)
    if not match or (match[2] or "s") not in SPANS_NS:
        raise ValueError(_wanted(value, _AS_SPAN))
    return float(match[1]) * (SPANS_NS[match[2] or "s"] / NANOS_PER_SECOND)


def read_rate(value: Any) -> tuple[int, int]:
    """`500`, `500/s`, `30/min`, `5/30s`, `10MB/s` as (tokens, nanoseconds of the period)."""
    if type(value) is int and 0 < value <= _MOST:
        return value, NANOS_PER_SECOND
    return _read_rate(_line(value, _AS_RATE))


@functools.lru_cache(maxsize=1024)
def _read_rate(text: str) -> tuple[int, int]:
    """Read a rate once: files of 100,000 topics repeat a few rates."""
    amount, slash, span = text.partition("/")
    tokens, period_ns = _number_of_bytes(amount.rstrip()), _period_ns(span if slash else "s")
    if tokens is None or not period_ns:
        raise ValueError(_wanted(text, _AS_RATE))
    if tokens.denominator != 1:
        raise ValueError("a rate is a whole number per period: write 0.5 as 30/min")
    if tokens > _MOST:
        raise ValueError(f"a rate is at most {_MOST}; leave the key out for no limit")
    if period_ns > LONGEST_PERIOD_S * NANOS_PER_SECOND:
        raise ValueError(f"a period is at most {LONGEST_PERIOD_S}s")
    if tokens <= 0:
        raise ValueError("a rate is above 0; leave the key out for no limit")
    return int(tokens), period_ns


def _period_ns(span: str) -> int | None:
    match = _PERIOD.fullmatch(span.replace(" ", ""))
    if not match or match[2] not in SPANS_NS:
        return None
    return round(Fraction(match[1] or 1) * SPANS_NS[match[2]])


def read_count_rate(value: Any) -> tuple[int, int]:
    """`500`, `500/s`, `30/min`, `5/30s`: a rate of things that are counted and have no unit."""
    if type(value) is not int and not _AMOUNT.fullmatch(_line(value, _AS_COUNT_RATE).partition("/")[0].rstrip()):
        raise ValueError(_wanted(value, _AS_COUNT_RATE))
    return read_rate(value)


def _endpoint(form: EndpointForm, value: Any) -> Endpoint:
    if "@" in str(value):
        raise ValueError(f"it holds a user or a password; write it as {form.example}")
    try:
        return form.parse(str(_short(value, LONGEST)))
    except EndpointError as error:
        raise ValueError(error.problem) from None


def _one_or_more(form: EndpointForm, value: Any) -> tuple[Endpoint, ...]:
    """One address, or a list of different ones."""
    if not isinstance(value, list | tuple):
        return (_endpoint(form, value),)
    endpoints: list[Endpoint] = []
    for each in value:
        try:
            endpoint = _endpoint(form, each)
        except ValueError as error:
            shown = "…" if "@" in str(each) else str(each)[:_MOST_SHOWN]
            raise ValueError(f"{shown!r}: {error}" if len(value) > 1 else str(error)) from None
        if endpoint.port and any(endpoint.address == other.address for other in endpoints):
            raise ValueError(f"{endpoint.address} occurs twice in the list")
        endpoints.append(endpoint)
    if not endpoints:
        raise ValueError(f"the list is empty; write one address at least, as {form.example}")
    return tuple(endpoints)


def _listen(value: Any) -> tuple[Endpoint, ...]:
    return _one_or_more(_CLIENTS, value)


def _admin(value: Any) -> Endpoint:
    return _endpoint(_ADMIN, value)


def _broker(value: Any) -> Endpoint:
    """Read a broker's address; its scheme is empty where none is written."""
    endpoint = _endpoint(BROKERS, value)
    return endpoint if "://" in str(value) else endpoint._replace(scheme="")


def _service_urls(value: Any) -> tuple[Endpoint, ...]:
    endpoints = _one_or_more(_SERVICE_URL, value)
    if len({each.scheme for each in endpoints}) > 1:
        raise ValueError(f"{PLAIN}:// and {TLS}:// are in one list; all brokers are reached in the same way")
    return endpoints


def _web_service(value: Any) -> Endpoint:
    return _endpoint(WEB_SERVICES, value)


def _web_service_url(value: Any) -> Endpoint:
    if "@" in str(value):
        raise ValueError("the URL holds a user or a password; name a file with a token in admin_forward.token")
    return _endpoint(_WEB_SERVICE_URL, value)


def _collector_url(value: Any) -> Endpoint:
    if "@" in str(value):
        raise ValueError("the URL holds a user or a password; name a file with a token in otlp.token")
    return _endpoint(_COLLECTOR_URL, value)


def _host_name(value: Any) -> str:
    if not _HOST_NAME.fullmatch(str(_short(value, LONGEST))):
        raise ValueError("write a name as proxy-1.example, without scheme and port")
    return host_name(str(value))


def _or_text(least: int, pattern: str) -> WithJsonSchema:
    """The JSON Schema of a value that may be an integer or text."""
    return WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": least}, {"type": "string", "pattern": f"^{pattern}$"}]}
    )


_NUMBER_TEXT = r"(0|[1-9][0-9]{0,29})(\.[0-9]{1,30})?"
_SIZE_TEXT = rf"{_NUMBER_TEXT} ?({'|'.join(filter(None, _SIZES))})?"
_SPAN_TEXT = "|".join(SPANS_NS)
_PER_TEXT = rf"(/({_NUMBER_TEXT})?({_SPAN_TEXT}))?"

Flag = Annotated[bool, BeforeValidator(_flag)]
Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[Whole, Le(_MOST)]
Size = Annotated[int, BeforeValidator(read_size), _or_text(0, _SIZE_TEXT)]
Seconds = Annotated[float, BeforeValidator(read_span), _or_text(0, rf"{_NUMBER_TEXT} ?({_SPAN_TEXT})?")]
Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(ip_network)]
PerPeriod = Annotated[tuple[int, int], BeforeValidator(read_rate), _or_text(1, _SIZE_TEXT + _PER_TEXT)]
CountPerPeriod = Annotated[tuple[int, int], BeforeValidator(read_count_rate), _or_text(1, _NUMBER_TEXT + _PER_TEXT)]
HostName = Annotated[str, BeforeValidator(_host_name)]
_AS_TEXT = PlainSerializer(str, return_type=str)
_AS_TEXTS = PlainSerializer(lambda value: [str(each) for each in value], return_type=list[str])
ListenAddresses = Annotated[tuple[Endpoint, ...], PlainValidator(_listen), _AS_TEXTS]
AdminAddress = Annotated[Endpoint, PlainValidator(_admin), _AS_TEXT]
BrokerAddress = Annotated[Endpoint, PlainValidator(_broker), _AS_TEXT]
ServiceUrls = Annotated[tuple[Endpoint, ...], PlainValidator(_service_urls), _AS_TEXTS]
WebServiceAddress = Annotated[Endpoint, PlainValidator(_web_service), _AS_TEXT]
WebServiceUrl = Annotated[Endpoint, PlainValidator(_web_service_url), _AS_TEXT]
CollectorUrl = Annotated[Endpoint, PlainValidator(_collector_url), _AS_TEXT]


def _whole_topic(name: Any) -> str:
    topic = parse_topic(str(_short(_text(name), _LONGEST_TOPIC)))
    for part in (topic.tenant, topic.namespace, topic.local):
        _short(part, LONGEST_PART)
    if not topic.local.isprintable():
        raise ValueError(f"{name!r} has characters that cannot be seen; write the limit for the topic's namespace")
    if topic.partition >= 0:
        raise ValueError(f"name the topic {topic.partitioned!r}, not one partition: the limit is each partition's")
    return str(name)


def _namespace(name: Any) -> str:
    if EACH in _text(name):
        raise ValueError("one namespace is named here, and no pattern")
    parts = str(_short(_text(name), 2 * LONGEST_PART + 1)).split("/")
    for part in parts:
        _short(part, LONGEST_PART)
    if len(parts) != 2 or not all(map(is_entity, parts)):
        raise ValueError("write a namespace as tenant/namespace, both of letters, digits and _-=:.")
    return str(name)


def _tenant(name: Any) -> str:
    _short(_text(name), LONGEST_PART)
    if EACH in name:
        raise ValueError("one tenant is named here, and no pattern")
    if not is_entity(str(name)):
        raise ValueError("write a tenant as tenant, of letters, digits and _-=:.")
    return str(name)


def _limited_tenant(name: Any) -> str:
    _short(_text(name), LONGEST_PART)
    form_of(name)
    if name != EACH and not is_entity(name.replace(EACH, "-")):
        raise ValueError(
            "write a tenant as tenant, of letters, digits and _-=:., a pattern as free-*, or * for each other one"
        )
    return str(name)


def _limited_namespace(name: Any) -> str:
    _short(_text(name), 2 * LONGEST_PART + 1)
    form_of(name)
    if name == EACH:
        raise ValueError("write */* for each namespace: * is for one part of a name, before or after the slash")
    _namespace(name.replace(EACH, "-"))
    return str(name)


def network_name(name: Any) -> str:
    """Return an address or network in its one form."""
    network = read_network(str(_short(_text(name), LONGEST)))
    if network.version == 6 and network.prefixlen > IPV6_HOST:
        wide = network.supernet(new_prefix=IPV6_HOST)
        raise ValueError(f"an IPv6 client is limited by its /{IPV6_HOST}: write {wide}")
    return str(network)


def _name(name: str) -> str:
    if not name or len(name) > MOST_NAME or not name.isprintable():
        raise ValueError(f"write a name in one line of 1 to {MOST_NAME} characters")
    return name


LONGEST_LIMIT_NAME = 300
"""Most characters of the name of a limit that has metrics: a scrape is bounded."""
_OF_TOPICS = frozenset(level.word for level in LEVELS if level.limited in {(TOPIC,), (PARTITIONED_TOPIC,)})
_NAMELESS = frozenset(level.word for level in LEVELS if not level.limited)
"""Levels with one limit in each direction, which has no name."""
_WITH_METRICS = tuple(word for word, level in LEVEL_OF_WORD.items() if not level.names_clients)
_AS_LIMIT = "write a level and a name as `tenant acme`, `topic acme/shop/*`, or `proxy` alone"


def _limit_with_metrics(value: Any) -> str:
    """`tenant acme`, `namespace acme/*`, `topic persistent://acme/shop/orders`, `proxy`: a level, and a name of it."""
    if not isinstance(value, str):
        raise ValueError(_AS_LIMIT)  # noqa: TRY004 - pydantic takes it for a problem
    level, _, name = value.strip().partition(" ")
    name = name.strip()
    if level in LEVEL_OF_WORD and level not in _WITH_METRICS:
        raise ValueError(
            f"{level} limits are named after clients, which /metrics never shows; GET /sluice/limiters has them"
        )
    if level not in LEVEL_OF_WORD:
        raise ValueError(f"{level[:_MOST_SHOWN]!r} is no level: {_AS_LIMIT}; levels are {', '.join(_WITH_METRICS)}")
    if level in _NAMELESS and name:
        raise ValueError(f"the limit of {level} has no name: write `{level}` alone")
    if level not in _NAMELESS and not name:
        named = "topic" if level in _OF_TOPICS else level.replace("_", " ")
        raise ValueError(f"name the {named}, or write `{level} *` for all")
    if level in _OF_TOPICS and "://" not in name and name != EACH:
        name = f"persistent://{name}"
    if len(name) > LONGEST_LIMIT_NAME or not name.isprintable():
        raise ValueError(f"metrics show names in one line of {LONGEST_LIMIT_NAME} characters at most")
    form_of(name)
    return f"{level} {name}".rstrip()


def _proxy_id(value: str) -> str:
    if not _PROXY_ID.fullmatch(value):
        raise ValueError(
            "write 1 to 100 letters, digits, dots, underscores and hyphens, and no dot or underscore first: files of "
            "the access log begin with it, and Spark passes over such names"
        )
    return value


TenantName = Annotated[str, BeforeValidator(_tenant)]
TenantPattern = Annotated[str, BeforeValidator(_limited_tenant)]
NamespacePattern = Annotated[str, BeforeValidator(_limited_namespace)]
NetworkName = Annotated[str, BeforeValidator(network_name)]
WholeTopic = Annotated[str, BeforeValidator(_whole_topic)]
NamespaceName = Annotated[str, BeforeValidator(_namespace)]
Name = Annotated[str, AfterValidator(_name)]
RoleName = Annotated[str, AfterValidator(read_role)]
LimitWithMetrics = Annotated[str, BeforeValidator(_limit_with_metrics)]
ProxyId = Annotated[str, AfterValidator(_proxy_id)]
