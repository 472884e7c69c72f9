"""Makes `docs/configuration.md` and `docs/sluice.yaml` from the model.

python -m proxy.config.reference > docs/configuration.md
python -m proxy.config.reference --yaml > docs/sluice.yaml
"""

import sys
import typing
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.config.environment import section_of
from proxy.config.limits import RateLimit, TopicDispatchLimit
from proxy.config.model import Config
from proxy.config.words import default_of, type_of
from proxy.config.yaml_page import commented_yaml

_HEAD = """\
# Configuration

One YAML file, given as `sluice serve --config FILE` or in `SLUICE_CONFIG`; [sluice.yaml](sluice.yaml) is one with every
key, commented out. `sluice check --config FILE` names every mistake, in the environment too. Sizes are written `4096`,
`64KB`, `10MB`, `1GiB`; durations `500ms`, `1s`, `5min`; rates `500` (a second), `500/s`, `30/min`, `5/30s`, `10MB/s`.
This page is made from the model in `proxy/config/model.py`.

## The environment

Flags override environment variables, these the file, and that the defaults. A variable is named as its key, in
capitals behind `SLUICE_`, with two underscores for each dot: `SLUICE_LISTEN`, `SLUICE_ACCESS_LOG__DIR`,
`SLUICE_ADMIN_ACCESS__TOKENS`. A list has commas: `SLUICE_ALLOWED_BROKERS=a:6650,b:6650`; what goes by names is YAML:
`SLUICE_LIMITS__NAMESPACES='{acme/shop: {publish: {messages: 500/s}}}'`, and stands for all of that key. An empty
variable counts as not set. One that begins with `SLUICE_` and stands for no key is an error, but for those of other
commands (`SLUICE_CONFIG`, `SLUICE_TOKEN_FILE`, `SLUICE_CA`, `SLUICE_CERT`, `SLUICE_KEY`, `SLUICE_PLAIN_HTTP`;
`SLUICE_ADMIN` is where they ask as well as where `sluice serve` listens, and with a URL for them alone) and those that
Kubernetes makes for a Service. On reload the environment is that of the start.

`sluice check --config FILE --show` prints every value that is given, with where: the file, a variable, a flag (it takes
those of `sluice serve`); `--show-defaults` all others, too. What it prints is a configuration.

No secret is a value here: tokens and TLS keys are files, which are read again when they change.

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
    """The page."""
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
