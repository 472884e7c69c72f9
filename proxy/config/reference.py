"""Makes `docs/configuration.md` and `docs/sluice.yaml` from the model.

python -m proxy.config.reference > docs/configuration.md
python -m proxy.config.reference --yaml > docs/sluice.yaml
"""

import re
import sys
import textwrap
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from limiter.token_bucket import NANOS_PER_SECOND
from protocol.endpoint import Endpoint
from proxy.config.limits import RateLimit, TopicDispatchLimit
from proxy.config.model import Config
from proxy.config.sources import section_of
from proxy.config.values import (
    AdminAddress,
    BrokerAddress,
    LimitWithMetrics,
    ListenAddresses,
    Name,
    NamespaceName,
    NamespacePattern,
    NetworkName,
    ServiceUrls,
    TenantName,
    TenantPattern,
    WebServiceAddress,
    WebServiceUrl,
    WholeTopic,
    read_count_rate,
    read_rate,
    read_size,
    read_span,
    size_text,
)

_OF_READERS: Mapping[Any, tuple[str, str]] = {
    read_size: ("size in bytes", "10MB"),
    read_span: ("duration", "10s"),
    read_rate: ("rate of bytes", "10MB/s"),
    read_count_rate: ("rate", "500/s"),
    ip_network: ("network", "10.0.0.0/8"),
    "ListenAddresses": ("HOST:PORT, or a list", "0.0.0.0:9100"),
    "AdminAddress": ("HOST:PORT", "0.0.0.0:9100"),
    "BrokerAddress": ("HOST:PORT", "broker-1:6650"),
    "ServiceUrls": ("pulsar://HOST:PORT or pulsar+ssl://HOST:PORT, or a list", "pulsar://broker:6650"),
    "WebServiceAddress": ("HOST:PORT", "broker-1:8080"),
    "WebServiceUrl": ("http://HOST:PORT or https://HOST:PORT", "http://broker:8080"),
    "TenantName": ("tenant", "acme"),
    "NamespaceName": ("tenant/namespace", "acme/shop"),
    "TenantPattern": ("tenant or pattern", "acme"),
    "NamespacePattern": ("tenant/namespace or pattern", "acme/shop"),
    "NetworkName": ("address or network", "10.0.0.0/8"),
    "WholeTopic": ("topic", "persistent://acme/shop/orders"),
    "Name": ("name", "orders"),
    "LimitWithMetrics": ("level and name", "tenant acme"),
}
_OF_TYPES: Mapping[Any, tuple[str, Any]] = {
    bool: ("true or false", True),
    int: ("integer", 1000),
    Path: ("path", "/etc/sluice/file"),
    str: ("text", "text"),
}
_OF_KEYS: Mapping[str, Any] = {
    "dir": "/var/log/sluice",
    "listen": "0.0.0.0:6655",
    "store": "/var/lib/sluice/policies.db",
    "state": "/var/lib/sluice/state",
    "retain_age": "7d",
    "topic": "persistent://public/sluice/front-policies",
    "retain_size": "10GB",
    "address_key": "/etc/sluice/address.key",
    "tokens": "/etc/sluice/tokens.yaml",
    "certificate": "/etc/sluice/tls.crt",
    "key": "/etc/sluice/tls.key",
    "client_ca": "/etc/sluice/ca.crt",
    "ciphers": "ECDHE+AESGCM:ECDHE+CHACHA20",
    "client_auth": "required",
    "server_name": "broker.example",
    "url": "https://broker:8443",
    "token": "/run/secrets/broker-token",
    "ca": "/etc/sluice/broker-ca.crt",
    "secret_key": "/etc/sluice/tokens.key",
    "public_key": "/etc/sluice/tokens.pem",
    "jwks": "/etc/sluice/tokens.jwks",
    "audience": "sluice",
    "htpasswd": "/etc/sluice/htpasswd",
    "token_file": "/run/secrets/sluice-token",
    "shared": ["tenant", "topic"],
    "brokers": ["broker-*.example:8443"],
    "read_only": ["grafana"],
    "write": ["ops"],
    "subscribe_rate_per_consumer": "5/30s",
    "subscribe": "5/30s",
    "metrics_limits": ["tenant acme", "namespace acme/*", "topic persistent://acme/shop/orders"],
    "peak_messages": "1000/s",
    "peak_bytes": "20MB/s",
    "plan": "gold",
    "blocks": [{"producer": "noisy", "namespace": "acme/shop", "reason": "floods since Tuesday"}],
}
"""Examples for keys whose type's example would say little, or contradict another key's."""
_NAMED = {
    typing.get_args(alias)[1].func: name
    for name, alias in {
        "ListenAddresses": ListenAddresses,
        "AdminAddress": AdminAddress,
        "BrokerAddress": BrokerAddress,
        "ServiceUrls": ServiceUrls,
        "WebServiceAddress": WebServiceAddress,
        "WebServiceUrl": WebServiceUrl,
        "TenantName": TenantName,
        "NamespaceName": NamespaceName,
        "TenantPattern": TenantPattern,
        "NamespacePattern": NamespacePattern,
        "NetworkName": NetworkName,
        "WholeTopic": WholeTopic,
        "Name": Name,
        "LimitWithMetrics": LimitWithMetrics,
    }.items()
}


_SERVICE_URLS = next(reader for reader, name in _NAMED.items() if name == "ServiceUrls")


def type_of(field: FieldInfo) -> str:
    """Return the type of a key's value, with its unit and bounds."""
    words = _words(field.annotation, field.metadata)[0]
    bounds = [*_bounds(field.metadata)]
    return ", ".join([words, *bounds])


def default_of(field: FieldInfo) -> str | None:
    """Return the default of a key, as it would be written; None without one."""
    value = None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})
    readers = {getattr(part, "func", None) for part in field.metadata}
    if value is None or value == ():
        return None
    if read_span in readers:
        return f"{value:g}s"
    if read_count_rate in readers:
        return f"{value[0]}/{value[1] / NANOS_PER_SECOND:g}s".replace("/1s", "/s")
    if read_size in readers:
        return size_text(value)
    if isinstance(value, tuple) and isinstance(value[0], Endpoint):
        (value,) = value
    if isinstance(value, Endpoint) and _SERVICE_URLS not in readers:
        return value.address
    return str(value).lower() if isinstance(value, bool) else str(value)


def example_of(name: str, field: FieldInfo) -> Any:
    """Return an example of a value, for a key that has no default."""
    return _OF_KEYS.get(name) or _words(field.annotation, field.metadata)[1]


def name_example(annotation: Any) -> str:
    """Return a name, for a section whose keys are names."""
    return str(_words(typing.get_args(annotation)[0], ())[1])


def _words(annotation: Any, metadata: Any) -> tuple[str, Any]:
    if typing.get_origin(annotation) is Annotated:
        annotation, *more = typing.get_args(annotation)
        metadata = (*metadata, *more)
    for part in metadata:
        reader = getattr(part, "func", None)
        entry = _OF_READERS.get(_NAMED.get(reader, reader))
        if entry is not None:
            return entry
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


_YAML_HEAD = """\
## Sluice's configuration: every key with its meaning, its type, and its default.
##
## This file changes nothing: every line is a comment. Take away the first # of a key and of the sections around it.
## A key without a default shows an example. Sections `tls` and `broker_tls` need addresses with pulsar+ssl:// in
## `listen` and `broker`. `sluice check --config FILE` names every mistake.
##
## size in bytes   4096, 64KB, 10MB, 64KiB, 1GiB (B, kB or KB, MB, GB: 1000; KiB, MiB, GiB: 1024)
## duration        500ms, 1s, 5min, 2h, 1d (plain numbers are seconds)
## rate            500 (a second), 500/s, 30/min, 5/30s; of bytes 10MB/s, 64KiB/s
##
## Each key has an environment variable: SLUICE_LISTEN, and SLUICE_ACCESS_LOG__DIR for access_log.dir.
## This file is made from the model in proxy/: python -m proxy.config.reference --yaml > docs/sluice.yaml
"""
_WIDTH = 116
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+)[^)]*\)")
_FLOW = 10_000
"""Columns of a line: so many that no list is broken into several."""


def commented_yaml() -> str:
    """Return the file."""
    blocks = ("".join(f"#{line}\n" for line in lines) for lines in _Page().keys(Config))
    return "\n".join((_YAML_HEAD, *blocks))


class _Page:
    """The lines of each key; the keys of a rate are listed at the first rate of its kind only."""

    def __init__(self) -> None:
        self._rates: dict[type[BaseModel], str] = {}

    def keys(self, model: type[BaseModel], above: str = "") -> Iterator[list[str]]:
        for name, field in model.model_fields.items():
            yield list(self._key(f"{above}{name}", name, field))

    def _key(self, path: str, name: str, field: FieldInfo) -> Iterator[str]:
        section = section_of(field.annotation)
        is_by_name = typing.get_origin(field.annotation) is dict
        by_name = section_of(typing.get_args(field.annotation)[1]) if is_by_name else None
        if section is not None and issubclass(section, RateLimit):
            yield from self._rate(path, name, field, section)
        elif section is not None:
            yield from _prose(field.description or _first_line(section))
            yield f"{name}:"
            yield from self._inside(section, f"{path}.")
        elif by_name is not None:
            example = name_example(field.annotation)
            yield from _prose(field.description or _first_line(by_name), "by NAME; default: none")
            yield f"{name}:"
            yield f"  {_written(example)}:"
            yield from ("  " + line for line in self._inside(by_name, f"{path}.NAME."))
        else:
            yield from _value(name, field)

    def _inside(self, section: type[BaseModel], above: str) -> Iterator[str]:
        for lines in self.keys(section, above):
            yield from ("  " + line for line in lines)

    def _rate(self, path: str, name: str, field: FieldInfo, section: type[BaseModel]) -> Iterator[str]:
        if section in self._rates:
            yield from _prose(field.description, f"a rate with the keys of {self._rates[section]}; default: none")
            yield f"{name}: {{messages: 500/s, bytes: 10MB/s}}"
            return
        self._rates[section] = path
        yield from _prose(field.description, "a rate; messages and bytes both hold if both are given; default: none")
        yield f"{name}:"
        yield from self._inside(section, f"{path}.")


def _value(name: str, field: FieldInfo) -> Iterator[str]:
    default = default_of(field)
    text = "; must be given" if field.is_required() else f"; default: {default or 'none'}"
    has_default = "default:" in (field.description or "")
    yield from _prose(field.description, type_of(field) + text * (not has_default))
    for entry in _entries(field):
        yield from (f"  {line}" for line in entry)
    if default is None:
        example = example_of(name, field)
    else:
        example = default if isinstance(field.default, str) else yaml.safe_load(default)
    yield f"{_ALTERNATIVE if name == 'plan' else ''}{name}: {_written(example)}"


_ALTERNATIVE = "# "
"""Begins the line of a key in whose place the page shows others."""


def _entries(field: FieldInfo) -> Iterator[list[str]]:
    """Yield the lines that describe the keys of one section, for a field that is a list of sections."""
    if typing.get_origin(field.annotation) is tuple:
        section = section_of(typing.get_args(field.annotation)[0])
        for name, inner in section.model_fields.items() if section else ():
            yield list(_prose(f"{name}: {inner.description}"))


def _first_line(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").partition("\n")[0]


def _prose(*texts: str | None) -> Iterator[str]:
    for text in texts:
        plain = _LINK.sub(r"\1 in docs/\2", text or "")
        yield from (f"# {line}" for line in textwrap.wrap(plain, _WIDTH - 12))


def _written(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=_FLOW).removesuffix("...\n").strip()


_HEAD = """\
# Configuration

One YAML file, or [a folder of files](#a-folder-of-files), given as `sluice serve --config FILE` or in `SLUICE_CONFIG`;
[sluice.yaml](sluice.yaml) is a file with every key, commented out. `sluice check --config FILE` names every mistake, in
the environment too. Sizes are written `4096`, `64KB`, `10MB`, `1GiB`; durations `500ms`, `1s`, `5min`; rates `500`
(a second), `500/s`, `30/min`, `5/30s`, `10MB/s`. This page is made from the model in
`proxy/config/model.py`.

## Names and values

Names and values are the text that is written, with or without quotes: YAML turns nothing into something else.
`007`, `no`, `1_000`, `12:30` and `null` are tenants of these very names.

- YAML's syntax needs quotes for `"*"`, and for text that holds a colon and a blank, or a blank and `#`.
- Numbers are decimal digits alone: `010`, `0x1F`, `1_000`, `1,000`, `5:30` and `+5` are refused.
- Truth values are `true` and `false`; `yes`, `no`, `on` and `off` are refused where one belongs.
- Units of bytes are `B`, `kB` or `KB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB` and `GiB` (of 1024). `10Mb/s`,
  `10mb/s`, `10Mbit/s` and `10m/s` are refused: a small b may mean bits, and no rate of Sluice is in bits. The same
  holds in variables, flags and over REST. Bodies of Pulsar's own paths have numbers of bytes alone.
- A key has a value: an empty value, `null` and `~` are refused. Leave the key out for its default.
- A key occurs once. `&name`, `*name` and `<<` work as in YAML; tags as `!!int` are refused. All aliases
  of a file (`*name`) stand for 2,000,000 values at most.

The same holds for YAML in variables and in `admin_access.tokens`. An error names file and line, key, value and remedy:

```
sluice: sluice.yaml:7: limits.tenants.acme.publish.messages: '010': write a rate of what is counted as 500, …
sluice: sluice.yaml:12: max_connection: this key is not known here; did you mean max_connections?
```

## A folder of files

`--config` may name a folder, as `conf.d`. All files in it whose names end in `.yaml` or `.yml` are one configuration.
Other files are passed over: `sluice check`, the start and each reload warn of those that are neither hidden nor a copy
of an editor (`~`, `.swp`, `#…#`). The files are merged by key: one file may have the plans, and each of others the
limits of some tenants. A key that two files set is an error that names both, with lines: there is no file that wins
over another. A list, as `blocks`, is one value, and so is in one file. A file without any key is an error.

A file that changes, comes or goes is noticed as a change of the configuration. A reload takes as many of the changed
files as are good together. Of all others the content of before holds; a new one is left out, one that is gone still
holds. No limit gets looser by a mistake in another file:

- A file with a mistake is not taken.
- Of files that set one key, the changed ones are not taken.
- A file that refers to a plan which no file has is not taken. If it has not changed, the file that dropped the plan is
  not taken, and with it the changed files that use the plan's new name.
- A limit or block may move from one file to another. If the other is not taken, the file that dropped it is not taken,
  either, so that it does not vanish. Names count, patterns that match them, and in a file that is no YAML, its words.
- Sluice reads each file once, and looks at the whole folder again without the files that are at fault: most often once
  or twice, at most 64 times, each as long as a start. If mistakes are left then, no changed file is taken.
- A mistake in no file (a flag, a variable), and a folder without any file (emptied, or not mounted), keep all as it
  was. A start takes all files, or ends.

The log and the answer of `POST /sluice/reload` name each mistake with file, line and key, each file that is not taken
with its reason, and the changed files that are taken.

There are at most 1,000 files.

## The environment

Flags override environment variables, variables override the file, and the file overrides the defaults. The variable of
a key is `SLUICE_` and the key in capitals, with two underscores for each dot: `SLUICE_LISTEN`,
`SLUICE_ACCESS_LOG__DIR`, `SLUICE_ADMIN_ACCESS__TOKENS`. A list has commas: `SLUICE_ALLOWED_BROKERS=a:6650,b:6650`. One
comma alone is the empty list. A section by names is YAML, and replaces the whole key:
`SLUICE_LIMITS__NAMESPACES='{acme/shop: {publish: {messages: 500/s}}}'`. A variable of a key must not be empty: unset
it for the default. A variable that begins with `SLUICE_` and names no key is an error, except those of other commands
(`SLUICE_CONFIG`, `SLUICE_TOKEN_FILE`, `SLUICE_CA`, `SLUICE_CERT`, `SLUICE_KEY`, `SLUICE_PLAIN_HTTP`) and those that
Kubernetes makes for a Service. `SLUICE_ADMIN` is the address that commands ask and at which `sluice serve` listens; a
URL is for commands alone. On reload the environment is that of the start.

`sluice check --config FILE --show` prints every given value with its source: the file, a variable, or a flag (the
command takes those of `sluice serve`); `--show-defaults` adds all defaults. The output is a configuration.

No secret is a value here: tokens and TLS keys are files, which are read again when they change. Where a secret is
written nevertheless, errors do not show what they recognise: the user and password of an address, `data:`, `Bearer …`,
a JWT, and values of keys that are named like a secret. A plain word in place of a file is shown, as the file that is
missing.

Files are regular ones, or links to them. A FIFO (so `<(…)` of a shell, too), device, socket or directory is refused at
once, and so is a file larger than its bound: 64 MiB for the configuration (100,000 topics with limits have 22), 16 MiB
for a `broker.conf`, 1 MiB for `admin_access.tokens` and for certificates and keys, 64 KiB for a single token or an
`address_key`.

## Keys

| key | type | default | meaning |
|---|---|---|---|
"""


_RATE_HEAD = """
## A rate

What stands above as *rate* is a section of these keys; messages and bytes both hold if both are given.

| key | type | default | meaning |
|---|---|---|---|
"""


def reference() -> str:
    """Return the page."""
    more = _table(TopicDispatchLimit, known=RateLimit.model_fields)
    return _HEAD + _table(Config) + _RATE_HEAD + _table(RateLimit) + more


def _table(model: type[BaseModel], known: Collection[str] = ()) -> str:
    rows = (row for row in _rows(model, "") if row.key not in known)
    return "".join(f"| `{row.key}` | {row.type} | {row.default} | {row.text} |\n" for row in rows)


class _Row(NamedTuple):
    key: str
    type: str
    default: str
    text: str


def _rows(model: type[BaseModel], prefix: str) -> Iterator[_Row]:
    for name, field in model.model_fields.items():
        section, suffix = _section(field.annotation)
        if section is None:
            yield _Row(f"{prefix}{name}", type_of(field), _default(field), field.description or "")
        elif issubclass(section, RateLimit):
            yield _Row(f"{prefix}{name}{suffix}", "*rate*", "none", field.description or "")
        else:
            for row in _rows(section, f"{prefix}{name}{suffix}."):
                is_told = field.description and row.default == "none"
                yield row._replace(text=f"{row.text}; {field.description}") if is_told else row


def _section(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model inside an annotation, and how its keys are reached from the field."""
    if typing.get_origin(annotation) is dict:
        return section_of(typing.get_args(annotation)[1]), ".NAME"
    return section_of(annotation), ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    default = default_of(field)
    return "none" if default is None else f"`{default}`"


if __name__ == "__main__":
    print(commented_yaml() if sys.argv[1:] == ["--yaml"] else reference(), end="")  # noqa: T201 - this is its job
