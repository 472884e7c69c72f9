"""A key of the configuration in words: what is written there, what holds where nothing is, and an example."""

import types
import typing
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from limiter.rates import NANOS_PER_SECOND
from proxy.config.values import (
    HostPort,
    ListenAddress,
    Name,
    NamespaceName,
    NetworkName,
    TenantName,
    WholeTopic,
    read_count_rate,
    read_rate,
    read_size,
    read_span,
)

_OF_READERS: Mapping[Any, tuple[str, str]] = {
    read_size: ("size in bytes", "10MB"),
    read_span: ("duration", "10s"),
    read_rate: ("rate of bytes", "10MB/s"),
    read_count_rate: ("rate", "500/s"),
    ip_network: ("network", "10.0.0.0/8"),
    "ListenAddress": ("HOST:PORT", "0.0.0.0:9100"),
    "HostPort": ("HOST:PORT", "broker-1:6650"),
    "TenantName": ("tenant", "acme"),
    "NamespaceName": ("tenant/namespace", "acme/shop"),
    "NetworkName": ("address or network", "10.0.0.0/8"),
    "WholeTopic": ("topic", "persistent://acme/shop/orders"),
    "Name": ("name", "orders"),
}
_OF_TYPES: Mapping[Any, tuple[str, Any]] = {
    bool: ("true or false", True),
    int: ("integer", 1000),
    Path: ("path", "/etc/sluice/file"),
    str: ("text", "text"),
}
_OF_KEYS: Mapping[str, Any] = {
    "dir": "/var/log/sluice",
    "store": "/var/lib/sluice/policies.db",
    "retain_age": "7d",
    "retain_size": "10GB",
    "address_key": "/etc/sluice/address.key",
    "tokens": "/etc/sluice/tokens.yaml",
    "certificate": "/etc/sluice/tls.crt",
    "key": "/etc/sluice/tls.key",
    "client_ca": "/etc/sluice/ca.crt",
    "url": "https://broker:8443",
    "token": "/run/secrets/broker-token",
    "ca": "/etc/sluice/broker-ca.crt",
    "brokers": ["broker-*.example:8443"],
    "read_only": ["grafana"],
    "write": ["ops"],
    "subscribe_rate_per_consumer": "5/30s",
    "subscribe": "5/30s",
    "peak_messages": "1000/s",
    "peak_bytes": "20MB/s",
    "blocks": [{"producer": "noisy", "namespace": "acme/shop", "reason": "floods since Tuesday"}],
}
"""Where one of its type would say little, or be wrong beside the others."""
_NAMED = {
    typing.get_args(alias)[1].func: name
    for name, alias in {
        "ListenAddress": ListenAddress,
        "HostPort": HostPort,
        "TenantName": TenantName,
        "NamespaceName": NamespaceName,
        "NetworkName": NetworkName,
        "WholeTopic": WholeTopic,
        "Name": Name,
    }.items()
}


def type_of(field: FieldInfo) -> str:
    """What is written at a key, with its unit and bounds."""
    words = _words(field.annotation, field.metadata)[0]
    bounds = [*_bounds(field.metadata)]
    return ", ".join([words, *bounds])


def default_of(field: FieldInfo) -> str | None:
    """What holds where a key is left out, as it would be written; None for nothing."""
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True, validated_data={})
    readers = {getattr(part, "func", None) for part in field.metadata}
    if value is None or value == ():
        return None
    if read_span in readers:
        return f"{value:g}s"
    if read_count_rate in readers:
        return f"{value[0]}/{value[1] / NANOS_PER_SECOND:g}s".replace("/1s", "/s")
    if read_size in readers:
        return _size(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def example_of(name: str, field: FieldInfo) -> Any:
    """What may be written at a key that has no default."""
    return _OF_KEYS.get(name) or _words(field.annotation, field.metadata)[1]


def name_example(annotation: Any) -> str:
    """A name, for a section whose keys are names."""
    return str(_words(typing.get_args(annotation)[0], ())[1])


def _words(annotation: Any, metadata: Any) -> tuple[str, Any]:
    if typing.get_origin(annotation) is Annotated:
        annotation, *more = typing.get_args(annotation)
        metadata = (*metadata, *more)
    for part in metadata:
        reader = getattr(part, "func", None)
        found = _OF_READERS.get(_NAMED.get(reader, reader))
        if found is not None:
            return found
    arguments = typing.get_args(annotation)
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return _words(arguments[0], ())
    if typing.get_origin(annotation) is tuple:
        words, example = _words(arguments[0], ())
        return f"list: {words}", [example]
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(arguments), arguments[0]
    return _OF_TYPES.get(annotation, ("section", {}))


def _bounds(metadata: Any) -> Iterator[str]:
    for part in metadata:
        if isinstance(part, Gt):
            yield f"above {part.gt}"
        elif isinstance(part, Ge):
            yield f"from {part.ge}"
        elif isinstance(part, Le):
            yield f"up to {part.le}"


def _size(value: int) -> str:
    for unit, name in ((1024**2, "MiB"), (1024, "KiB")):
        if value % unit == 0:
            return f"{value // unit}{name}"
    return str(value)
