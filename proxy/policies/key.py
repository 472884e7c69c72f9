"""What a policy is set for: the key under which it is kept, audited and explained."""

from dataclasses import dataclass
from enum import StrEnum

from limiter.policies import Setting
from limiter.rates import Direction


class Kind(StrEnum):
    """What a policy is about; beside it, what `setting` and `name` of its keys are."""

    PUBLISH = "publish"  # a Setting, and its name: publish rates
    DISPATCH = "dispatch"  # the same: dispatch rates
    SUBSCRIBE = "subscribe"  # the same: how often one consumer may subscribe
    GROUP = "group"  # empty, the group's name: a resource group's rates
    ATTACHMENT = "attachment"  # namespace or tenant, and its name: which resource group it is attached to
    DYNAMIC = "dynamic"  # empty, the broker's name of the key: dynamic configuration
    BLOCK = "block"  # empty, the block as text: who may not pass


_NAMES_NAMESPACE = frozenset({Setting.NAMESPACE, Setting.TOPIC_OF_NAMESPACE, Setting.SUBSCRIPTION_OF_NAMESPACE})
_NAMES_TOPIC = frozenset(
    {Setting.TOPIC, Setting.PARTITIONED_TOPIC, Setting.SUBSCRIPTION_OF_TOPIC, Setting.SUBSCRIPTION}
)


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


def rate_key(direction: Direction, setting: Setting, name: str) -> Key:
    """The key of a publish or dispatch rate."""
    return Key(Kind(direction), setting.value, name)


def namespace_of(key: Key) -> str | None:
    """`tenant/namespace`, if only its topics can be concerned."""
    if key.setting in _NAMES_NAMESPACE:
        return key.name
    if key.setting in _NAMES_TOPIC:
        _, _, path = key.name.rpartition("persistent://")
        return "/".join(path.split("/")[:2])
    return None
