"""Makes `docs/configuration.md` from the model: `python -m proxy.config_reference > docs/configuration.md`."""

import types
import typing
from collections.abc import Collection, Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from limiter.rates import NANOS_PER_SECOND
from proxy.config import Config
from proxy.config_limits import RateLimit, TopicDispatchLimit
from proxy.config_values import read_count_rate, read_size, read_span

_HEAD = """\
# Configuration

One YAML file, given as `sluice serve --config FILE`; flags override it. `sluice check --config FILE` names every
mistake. Sizes are written `4096`, `64KB`, `10MB`, `1GiB`; durations `500ms`, `1s`, `5min`; rates `500` (a second),
`500/s`, `30/min`, `5/30s`, `10MB/s`. This page is made from the model in `proxy/config.py`.

| key | default | meaning |
|---|---|---|
"""


_RATE_HEAD = """
## A rate

What stands above as *rate* is a section of these keys; messages and bytes both hold if both are given.

| key | default | meaning |
|---|---|---|
"""


def reference() -> str:
    """The page."""
    more = _table(TopicDispatchLimit, known=RateLimit.model_fields)
    return _HEAD + _table(Config) + _RATE_HEAD + _table(RateLimit) + more


def _table(model: type[BaseModel], known: Collection[str] = ()) -> str:
    rows = (row for row in _rows(model, "") if row[0] not in known)
    return "".join(f"| `{key}` | {default} | {text} |\n" for key, default, text in rows)


def _rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        section, suffix = _section(field.annotation)
        if section is None:
            yield f"{prefix}{name}", _default(field), field.description or ""
            continue
        if issubclass(section, RateLimit):
            yield f"{prefix}{name}{suffix}", "none", f"*rate* {field.description}"
            continue
        for key, default, text in _rows(section, f"{prefix}{name}{suffix}."):
            yield key, default, f"{text}; {field.description}" if field.description and default == "none" else text


def _section(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model inside an annotation, and how its keys are reached from the field."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    arguments = typing.get_args(annotation)
    if isinstance(annotation, types.UnionType):
        return _section(arguments[0])
    if typing.get_origin(annotation) is dict:
        return _section(arguments[1])[0], ".NAME"
    return None, ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value == ():
        return "none"
    readers = {getattr(part, "func", None) for part in field.metadata}
    if read_span in readers:
        return f"`{value:g}s`"
    if read_count_rate in readers:
        return f"`{value[0]}/{value[1] / NANOS_PER_SECOND:g}s`".replace("/1s", "/s")
    if read_size in readers and value % 1024**2 == 0:
        return f"`{value // 1024**2}MiB`"
    return f"`{value}`"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201 - this is its job
