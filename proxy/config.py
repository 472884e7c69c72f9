"""The configuration: one YAML file, overridden by flags; every error at once, each with key, value and remedy."""

import re
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from limiter.policies import Policies, Value
from limiter.rates import NANOS_PER_SECOND, Direction, Limit, Rate, rate
from protocol.topic_name import parse_topic
from proxy.brokers.targets import split_address

_SIZES = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}
_SPANS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER_AND_WORD = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*$")


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
    """`500`, `500/s`, `30/min`, `10MB/s` as (tokens, nanoseconds of the period)."""
    amount, _, span = str(value).partition("/")
    tokens = _number_of_bytes(amount)
    if tokens is None or (span and span not in _SPANS):
        raise ValueError("write a rate as 500, 500/s, 30/min, 10MB/s")
    if tokens.denominator != 1:
        raise ValueError("a rate is a whole number per period: write 0.5 as 30/min")
    if tokens <= 0:
        raise ValueError("a rate is above 0; leave the key out for no limit")
    return int(tokens), round(_SPANS[span or "s"] * NANOS_PER_SECOND)


def read_count_rate(value: Any) -> tuple[int, int]:
    """`500`, `500/s`, `30/min`: a rate of things that are counted and have no unit."""
    if not str(value).partition("/")[0].strip().replace(".", "", 1).isdigit():
        raise ValueError("write a rate of messages as 500, 500/s, 30/min")
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


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RateLimit(_Section):
    """Messages and bytes per second (or `/min`, `/h`), with room for bursts."""

    messages: CountPerPeriod | None = Field(None, description="messages per second, or 30/min")
    bytes: PerPeriod | None = Field(None, description="bytes per second, or 10MB/min")
    burst_messages: int | None = Field(None, gt=0, description="messages at once; default: a tenth of a period's worth")
    burst_bytes: Size | None = Field(None, gt=0, description="bytes at once; default: a tenth of a period's worth")

    def limit(self) -> Limit:
        """The same, as the limiter takes it."""
        return Limit(_rate(self.messages, self.burst_messages), _rate(self.bytes, self.burst_bytes))


def _rate(value: tuple[int, int] | None, burst: int | None) -> Rate | None:
    return None if value is None else rate(value[0], value[1], burst)


class NamespaceLimits(_Section):
    """Limits of one namespace."""

    publish: RateLimit | None = Field(None, description="of each of its topics")
    dispatch: RateLimit | None = Field(None, description="of each of its topics")
    publish_total: RateLimit | None = Field(None, description="of all its topics together")
    dispatch_total: RateLimit | None = Field(None, description="of all its topics together")


class TopicLimits(_Section):
    """Limits of one topic; of a partitioned one, of each partition."""

    publish: RateLimit | None = Field(None, description="in place of the namespace's value")
    dispatch: RateLimit | None = Field(None, description="in place of the namespace's value")


class Limits(_Section):
    """All limits. A topic's own value replaces its namespace's; totals apply besides."""

    namespaces: dict[str, NamespaceLimits] = Field(default_factory=dict, description="NAME is tenant/namespace")
    topics: dict[str, TopicLimits] = Field(default_factory=dict, description="NAME is the full topic name")

    @field_validator("namespaces")
    @classmethod
    def _named(cls, value: dict[str, NamespaceLimits]) -> dict[str, NamespaceLimits]:
        for name in value:
            if len(name.split("/")) != 2 or not all(name.split("/")):
                raise ValueError(f"{name!r} is not tenant/namespace")
        return value

    @field_validator("topics")
    @classmethod
    def _topic_named(cls, value: dict[str, TopicLimits]) -> dict[str, TopicLimits]:
        named: dict[str, TopicLimits] = {}
        for name, limits in value.items():
            topic = _whole_topic(name)
            if topic in named:
                raise ValueError(f"{name!r} names {topic!r}, which stands here twice")
            named[topic] = limits
        return named


def _whole_topic(name: str) -> str:
    topic = parse_topic(name)
    if topic.partition >= 0:
        raise ValueError(
            f"{name!r} is one partition; name the topic {topic.partitioned!r}, the limit is each partition's"
        )
    return topic.full


class AccessLog(_Section):
    """Where and how the access log is written."""

    dir: Path | None = Field(None, description="folder for closed log files; none: no access log")
    interval: Seconds = Field(1.0, ge=0.1, le=60, description="time between the lines of an active stream")
    rotate_size: Size = Field(64 * 1024**2, gt=0, description="bytes after which a file is closed")
    rotate_age: Seconds = Field(10.0, gt=0, description="time after which a file is closed")
    queue: Size = Field(
        32 * 1024**2, gt=0, description="bytes that may wait for the disk; more are dropped and counted"
    )


class Publish(_Section):
    """How much may be held of publishers over their limit."""

    hold_connection: Size = Field(8 * 1024**2, gt=0, description="bytes that one connection may hold")
    hold_total: Size = Field(
        64 * 1024**2, gt=0, description="bytes that all connections together may hold (maxMessagePublishBufferSizeInMB)"
    )


class Config(_Section):
    """Everything that `sluice serve` can be told."""

    listen: ListenAddress = Field("127.0.0.1:6650", description="where Pulsar clients connect")
    broker: HostPort = Field("pulsar://127.0.0.1:6651", description="the broker, or a service URL in front of several")
    admin: ListenAddress = Field("127.0.0.1:8080", description="metrics, health and admin REST")
    proxy_id: str = Field("sluice", min_length=1, pattern=r"^[A-Za-z0-9._-]+$", description="name in the access log")
    allowed_brokers: tuple[HostPort, ...] = Field((), description="further brokers: host:port, * in the host allowed")
    allowed_broker_networks: tuple[Network, ...] = Field((), description="where those may resolve to; empty: anywhere")
    handshake_timeout: Seconds = Field(30.0, gt=0, description="until a client must be connected through")
    connect_timeout: Seconds = Field(10.0, gt=0, description="for connecting to a broker")
    linger: Seconds = Field(10.0, gt=0, description="how long an ending connection may take to send what is left")
    max_connections: int = Field(10_000, gt=0, description="client connections at once")
    max_lookups_in_flight: int = Field(50_000, gt=0, description="lookups without an answer at once")
    access_log: AccessLog = AccessLog()
    publish: Publish = Publish()
    limits: Limits = Limits()

    @field_validator("broker")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not value.startswith("pulsar://"):
            raise ValueError("write the broker as pulsar://host:port")
        return value


class ConfigError(Exception):
    """The configuration cannot be used; `problems` says everything that is wrong, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load_config(path: Path | None, flags: dict[str, Any]) -> Config:
    """Read the file, if any, and lay the flags over it.

    Raises:
        ConfigError: With every problem, each naming file, key, value and remedy.
    """
    where = str(path) if path else "flags"
    values = _merged(_read_yaml(path) if path else {}, flags)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError([_explain(where, problem) for problem in error.errors()]) from None


def policies_of(limits: Limits) -> Policies:
    """The limits of the file, as the limiter takes them."""
    policies = Policies()
    directions: tuple[Direction, ...] = ("publish", "dispatch")
    for direction in directions:
        for name, namespace in limits.namespaces.items():
            _put(policies.namespaces, (direction, name), getattr(namespace, direction))
            _put(policies.namespace_totals, (direction, name), getattr(namespace, f"{direction}_total"))
        for name, topic in limits.topics.items():
            _put(policies.topics, (direction, name), getattr(topic, direction))
    return policies


def _put(table: dict[tuple[Direction, str], Value], key: tuple[Direction, str], limits: RateLimit | None) -> None:
    if limits is not None:
        table[key] = Value(limits.limit(), "file")


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: is not YAML: {' '.join(str(error).split())}"]) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: holds a {type(values).__name__}, not keys with values"])
    return values


def _merged(values: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    merged = values | {key: value for key, value in flags.items() if value is not None and key != "access_log"}
    log_dir = flags.get("access_log")
    if log_dir is not None:
        section = merged.get("access_log") or {}
        merged["access_log"] = (section if isinstance(section, dict) else {}) | {"dir": log_dir}
    return merged


def _explain(where: str, problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"] if part != "function-before") or "(top)"
    if problem["type"] == "extra_forbidden":
        return f"{where}: {key}: this key is not known here; see the configuration reference for those that are"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{where}: {key}: {problem['input']!r}: {message}"
