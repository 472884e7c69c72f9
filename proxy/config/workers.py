"""What `workers` above 1 does not go with: each needs to be known by all workers at once, and is not yet."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from proxy.config.model import Config

Key = tuple[str, ...]


def for_one_worker_only(config: "Config") -> Iterator[tuple[Key, str]]:
    """The keys that are given and need `workers: 1`, each with what is wrong and the remedy."""
    if config.workers == 1:
        return
    for key, name, value in _leaves(config.limits, ("limits",)):
        path = ".".join(key)
        if name == "mode" and value == "reject":
            yield (key, f"{path}: reject answers in one process only; write enforce or observe, or set workers: 1")


def _leaves(section: Any, path: Key) -> Iterator[tuple[Key, str, Any]]:
    """Every value that is given below a section, with its key and the last word of that."""
    if isinstance(section, BaseModel):
        inner: dict[str, Any] = {name: getattr(section, name) for name in section.model_fields_set}
    elif isinstance(section, dict):
        inner = section
    else:
        if section is not None:
            yield path, path[-1], section
        return
    for name, value in inner.items():
        yield from _leaves(value, (*path, str(name)))
