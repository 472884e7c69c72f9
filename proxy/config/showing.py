"""The configuration as it comes out of file, environment and flags together, each value with where it was given.

Values stand as they were written, so that nothing is lost on the way: what is shown makes the same configuration.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.config.environment import section_of
from proxy.config.limits import RateLimit
from proxy.config.model import Config, Loaded
from proxy.config.sources import Key
from proxy.config.words import default_of
from proxy.config.yaml_file import parse_yaml
from proxy.config.yaml_text import Taken, yaml_text

_HEADING = "Made by `sluice check --show`: every value that is given, with where."
_HEADING_OF_ALL = """\
Made by `sluice check --show-defaults`: every value, with where it is given.
What a rate, or the section of a name, leaves out is left out here, too."""


def shown(loaded: Loaded, *, with_defaults: bool) -> str:
    """YAML that `sluice check` accepts. Secrets are in files of their own: it shows where they are, and no content.

    Args:
        loaded: The configuration with its sources.
        with_defaults: Show what nobody has given, too.
    """
    show = _Show(loaded, with_defaults=with_defaults)
    values = list(show.section(Config, loaded.values, ()))
    return yaml_text(_HEADING_OF_ALL if with_defaults else _HEADING, values)


class _Show:
    def __init__(self, loaded: Loaded, *, with_defaults: bool) -> None:
        self._sources = loaded.sources
        self._with_defaults = with_defaults

    def section(self, model: type[BaseModel], given: Mapping[Any, Any], above: Key) -> Iterator[Taken]:
        """What is in a section, in the order of the reference."""
        for name, field in model.model_fields.items():
            key = (*above, name)
            if name in given:
                yield from self._given(field, given[name], key)
            elif self._with_defaults:
                yield from self._default(field, key)

    def _given(self, field: FieldInfo, value: Any, key: Key) -> Iterator[Taken]:
        section = section_of(field.annotation)
        has_keys = section is not None and not issubclass(section, RateLimit)
        if section is not None and has_keys and isinstance(value, Mapping) and (value or self._with_defaults):
            yield from self.section(section, value, key)
        else:
            yield from self._as_written(value, key)

    def _as_written(self, value: Any, key: Key) -> Iterator[Taken]:
        if isinstance(value, Mapping) and value:
            for name, inner in value.items():
                yield from self._as_written(inner, (*key, str(name)))
        else:
            yield Taken(key, value, self._source(key))

    def _default(self, field: FieldInfo, key: Key) -> Iterator[Taken]:
        value = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(value, BaseModel):
            yield from self.section(type(value), {}, key)
        else:
            text = default_of(field)
            yield Taken(key, value if text is None else parse_yaml(text), "default")

    def _source(self, key: Key) -> str:
        source = self._sources.of(key)
        return source if source.isprintable() else repr(source)
