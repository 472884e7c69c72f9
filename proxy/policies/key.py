"""What a policy is set for: the key under which it is kept, audited and explained."""

from dataclasses import dataclass
from enum import StrEnum

from limiter.levels import About, Setting


class Kind(StrEnum):
    """What a policy is about; beside it, what `setting` and `name` of its keys are."""

    PUBLISH = "publish"  # a Setting, and its name: publish rates
    DISPATCH = "dispatch"  # the same: dispatch rates
    SUBSCRIBE = "subscribe"  # the same: how often one consumer may subscribe
    GROUP = "group"  # empty, the group's name: a resource group's rates
    ATTACHMENT = "attachment"  # namespace or tenant, and its name: which resource group it is attached to
    DYNAMIC = "dynamic"  # empty, the broker's name of the key: dynamic configuration
    BLOCK = "block"  # empty, the block as text: who may not pass


_GLOBAL = "global_"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One policy's.

    Args:
        kind: What it is about.
        setting: Which level it is for; empty where the kind has only one.
        name: Whose it is.
    """

    kind: Kind
    setting: str
    name: str

    def __str__(self) -> str:
        return " ".join(part for part in (self.kind, self.setting, self.name) if part)


def rate_key(about: About, setting: Setting, name: str, *, is_global: bool = False) -> Key:
    """The key of a publish, dispatch or subscribe rate; Pulsar's tools can set a topic's twice, here and `--global`."""
    return Key(Kind(about), _GLOBAL * is_global + setting.value, name)


def setting_of(key: Key) -> tuple[Setting, bool]:
    """The setting of a rate's key, and whether it is the global one.

    Raises:
        ValueError: If it has none.
    """
    return Setting(key.setting.removeprefix(_GLOBAL)), key.setting.startswith(_GLOBAL)
