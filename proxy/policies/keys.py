"""Keys of policies, the targets that they name, and the principal who sets them, for the audit log.

A target is what a value is for, in three parts: what the value is about (publish, dispatch, subscribe), the setting
(one of `limiter.levels.Setting`), and the setting's name. People write targets in words; `read_target` reads them.
"""

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from pydantic import TypeAdapter, ValidationError

from limiter.levels import ABOUTS, NAMESPACE, PARTITIONED_TOPIC, TENANT, About, Part, Setting
from limiter.policies import PolicyTarget
from protocol.topic_name import parse_topic
from proxy.config.limits import name_type
from proxy.config.sources import cut, problem_text


@dataclass(frozen=True, slots=True)
class Principal:
    """The author of a change.

    Args:
        name: The name of a token or certificate, or the cause of a reload.
        address: The author's address.
        tenants: The tenants whose limits the change may set; None: it is an operator's.
    """

    name: str
    address: str
    tenants: frozenset[str] | None = None


class PolicyKind(StrEnum):
    """The subject of a policy; beside each, the meaning of `setting` and `name` in its keys."""

    __hash__ = str.__hash__  # an enumeration's own is a call of Python, and each look into a table makes one

    PUBLISH = "publish"  # a Setting, and its name: publish rates
    DISPATCH = "dispatch"  # the same: dispatch rates
    SUBSCRIBE = "subscribe"  # the same: how often one consumer may subscribe
    GROUP = "group"  # empty, the group's name: a resource group's rates
    ATTACHMENT = "attachment"  # namespace or tenant, and its name: which resource group it is attached to
    DYNAMIC = "dynamic"  # empty, the broker's name of the key: dynamic configuration
    BLOCK = "block"  # empty, the block as text


class ActionKind(StrEnum):
    """An action of an operator that changes no policy."""

    DRAIN = "drain"
    KICK = "kick"


ANONYMOUS = "anonymous"
"""The name of callers where no token is needed."""


class Layer(IntEnum):
    """The layer of a value. Of the operator's layers, which are all except TENANT, the higher one hides the lower."""

    FILE = 0
    DYNAMIC = 1
    GLOBAL = 2
    REST = 3
    TENANT = 4

    @property
    def origin(self) -> str:
        """The layer's name for people."""
        return _ORIGINS[self]


_ORIGINS = {layer: layer.name.lower() for layer in Layer}
OF_OPERATOR = (Layer.REST, Layer.GLOBAL, Layer.DYNAMIC, Layer.FILE)
"""The layers of the operator, the highest first."""
OF_TENANTS = "tenants_"
_PREFIXES = {Layer.GLOBAL: "global_", Layer.TENANT: OF_TENANTS}
"""The beginning of the setting in keys of layers that share their places with another layer of the store."""


@dataclass(frozen=True, slots=True, order=True)
class PolicyKey:
    """The key of one policy.

    Args:
        kind: The kind of policy.
        setting: The setting of the value; empty where the kind has only one.
        name: The name that the setting has: of a tenant, a topic, a group …
    """

    kind: PolicyKind
    setting: str
    name: str

    @property
    def setting_and_layer(self) -> tuple[str, Layer]:
        """The setting as people write it, and the layer of the store that keeps the policy."""
        for layer, prefix in _PREFIXES.items():
            if self.setting.startswith(prefix):
                return self.setting.removeprefix(prefix), layer
        return self.setting, Layer.REST

    @property
    def shown(self) -> str:
        """The key as errors show it: a long name is cut."""
        return str(replace(self, name=cut(self.name)))

    def __str__(self) -> str:
        setting, layer = self.setting_and_layer
        origin = "" if layer is Layer.REST else f"({layer.origin})"
        return " ".join(part for part in (self.kind, setting, self.name, origin) if part)


def rate_key(about: About, setting: Setting, name: str, layer: Layer = Layer.REST) -> PolicyKey:
    """Return the key under which a layer keeps a rate."""
    return PolicyKey(PolicyKind(about), _PREFIXES.get(layer, "") + setting.value, name)


def setting_of(key: PolicyKey) -> tuple[Setting, Layer]:
    """Return the setting of a rate's key, and the layer that keeps it.

    Raises:
        ValueError: If it has none.
    """
    setting, layer = key.setting_and_layer
    return Setting(setting), layer


OPERATOR, BLOCKS = "", "*"
"""Owners of policies that are no tenants, and that no tenant can be called."""


def owner_of(key: PolicyKey) -> str:
    """Return the owner of the room that a policy takes in the store: a tenant, `OPERATOR` or `BLOCKS`."""
    if key.kind is PolicyKind.BLOCK:
        return BLOCKS
    if not key.setting.startswith(OF_TENANTS):
        return OPERATOR
    return tenant_of(setting_of(key)[0], key.name) or OPERATOR


def parts_of(setting: Setting, name: str) -> dict[Part, str]:
    """Return the properties that all streams of a setting's name have; none for `*`.

    Raises:
        ValueError: If a topic in the name is none.
    """
    record = setting.record
    if record.is_each(name):
        return {}
    names = (name,) if len(record.named) == 1 else split_subscription(name) if record.named else ()
    parts = dict(zip(record.named, names, strict=True))
    if PARTITIONED_TOPIC in parts:
        topic = parse_topic(parts[PARTITIONED_TOPIC])
        parts |= {NAMESPACE: topic.namespace_name, TENANT: topic.tenant}
    elif NAMESPACE in parts:
        parts[TENANT] = parts[NAMESPACE].partition("/")[0]
    return parts


def tenant_of(setting: Setting, name: str) -> str | None:
    """Return the tenant that a setting's name belongs to; None for what tenants share (`*`, roles, groups …)."""
    try:
        return parts_of(setting, name).get(TENANT)
    except ValueError:
        return None


LONGEST = 4200
"""Characters: a subscription's name and a topic's three, each as long as Pulsar's paths have it."""
SETTINGS: dict[About, frozenset[Setting]] = {
    about: frozenset(setting for setting in Setting if about in setting.record.abouts) for about in ABOUTS
}
"""The settings of values, by the subject of the value."""


_NAMES = {part: TypeAdapter[str](name_type(part)) for setting in Setting for part in setting.record.named}


def _read_name(setting: Setting, name: str) -> str:
    named = setting.record.named
    if not named:
        if name:
            raise ValueError("leave the name out: this setting has no name")
        return name
    names = (name,) if len(named) == 1 else split_subscription(name)
    return "@".join([_read_part(part, part_name) for part, part_name in zip(named, names, strict=True)])


def _read_part(part: Part, name: str) -> str:
    read = _NAMES[part].validate_python(name)
    return parse_topic(read).full if part is PARTITIONED_TOPIC else read


def read_target(direction: str, setting: str, name: str) -> PolicyTarget:
    """Return the target that three words name.

    Raises:
        ValueError: If a word is wrong, with the right ones.
    """
    about = read_about(direction)
    parsed = read_setting(setting)
    if parsed not in SETTINGS[about]:
        settings = ", ".join(sorted(SETTINGS[about]))
        raise ValueError(f"setting: {setting!r} has no {about} limit; one of {settings}")
    if len(name) > LONGEST or not name.isprintable():
        raise ValueError(f"name: {name[:200]!r}: write it in one line of at most {LONGEST} characters")
    try:
        return about, parsed, _read_name(parsed, name)
    except ValidationError as error:
        raise ValueError(f"name: {problem_text(error.errors()[0])}") from None
    except ValueError as error:
        raise ValueError(f"name: {cut(repr(name))}: {error}") from None


def read_about(word: str) -> About:
    """Publish, dispatch or subscribe.

    Raises:
        ValueError: If the word is another one.
    """
    for about in ABOUTS:
        if about == word:
            return about
    raise ValueError(f"direction: {word[:100]!r} is not publish, dispatch or subscribe")


def read_setting(word: str) -> Setting:
    """Return the setting of that name.

    Raises:
        ValueError: If no setting has that name.
    """
    try:
        return Setting(word)
    except ValueError:
        raise ValueError(f"setting: {word[:100]!r} is not known; one of {', '.join(Setting)}") from None


def split_subscription(name: str) -> tuple[str, str]:
    """Subscription and topic of `subscription@topic`, whatever is in the subscription's name.

    Raises:
        ValueError: If it is not of this form.
    """
    for at in (name.rfind("@persistent://"), name.rfind("@non-persistent://")):
        if at >= 0 and _is_topic(name[at + 1 :]):
            return name[:at], name[at + 1 :]
    raise ValueError(f"{cut(repr(name))}: write subscription@domain://tenant/namespace/topic")


def _is_topic(name: str) -> bool:
    try:
        return parse_topic(name).full == name
    except ValueError:
        return False
