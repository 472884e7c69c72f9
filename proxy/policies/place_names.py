"""Places as people name them, in their one form: which settings there are, and how each one's name is written."""

from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError

from limiter.levels import About, Setting
from protocol.topic_name import parse_topic
from proxy.config.problems import told
from proxy.config.values import Name, NamespaceName, NetworkName, TenantName, WholeTopic
from proxy.policies.layers import Place
from proxy.policies.policy_set import ABOUTS, split_subscription

LONGEST = 4200
"""Characters: a subscription's name and a topic's three, each as long as Pulsar's paths have it."""
_OF_SUBSCRIPTIONS = frozenset(
    {
        *(Setting.SUBSCRIPTION, Setting.SUBSCRIPTION_OF_TOPIC),
        *(Setting.SUBSCRIPTION_OF_NAMESPACE, Setting.SUBSCRIPTION_OF_BROKER),
    }
)
SETTINGS: dict[About, frozenset[Setting]] = {
    "publish": frozenset(Setting) - _OF_SUBSCRIPTIONS,
    "dispatch": frozenset(Setting) - {Setting.PRODUCER},
    "subscribe": frozenset({Setting.TOPIC, Setting.TOPIC_OF_NAMESPACE, Setting.TOPIC_OF_BROKER}),
}
"""What a value can be set for, by what it is about."""


def _none(name: str) -> str:
    if name:
        raise ValueError("leave the name out: this setting is of all")
    return name


def _subscription(name: str) -> str:
    subscription, topic = split_subscription(name)
    return f"{TypeAdapter[str](Name).validate_python(subscription)}@{_topic(topic)}"


def _topic(name: Any) -> str:
    return parse_topic(TypeAdapter[str](WholeTopic).validate_python(name)).full


_TENANT = TypeAdapter[str](TenantName)
_NAMESPACE = TypeAdapter[str](NamespaceName)
_TOPIC = TypeAdapter[str](Annotated[str, AfterValidator(_topic)])
_NAMED = TypeAdapter[str](Name)
_NETWORK = TypeAdapter[str](NetworkName)
_ALL = TypeAdapter[str](Annotated[str, AfterValidator(_none)])
_OF_ONE = TypeAdapter[str](Annotated[str, AfterValidator(_subscription)])
_FORMS: dict[Setting, TypeAdapter[str]] = {
    Setting.PROXY: _ALL,
    Setting.TENANT: _TENANT,
    Setting.NAMESPACE: _NAMESPACE,
    Setting.RESOURCE_GROUP: _NAMED,
    Setting.PARTITIONED_TOPIC: _TOPIC,
    Setting.TOPIC: _TOPIC,
    Setting.TOPIC_OF_NAMESPACE: _NAMESPACE,
    Setting.TOPIC_OF_BROKER: _ALL,
    Setting.SUBSCRIPTION: _OF_ONE,
    Setting.SUBSCRIPTION_OF_TOPIC: _TOPIC,
    Setting.SUBSCRIPTION_OF_NAMESPACE: _NAMESPACE,
    Setting.SUBSCRIPTION_OF_BROKER: _ALL,
    Setting.PRODUCER: _NAMED,
    Setting.ROLE: _NAMED,
    Setting.ADDRESS: _NETWORK,
    Setting.EXEMPT: _ALL,
}


def read_place(direction: str, setting: str, name: str) -> Place:
    """The place that three words name.

    Raises:
        ValueError: With which of them is wrong, and what would be right.
    """
    about = read_about(direction)
    found = read_setting(setting)
    if found not in SETTINGS[about]:
        known = ", ".join(sorted(SETTINGS[about]))
        raise ValueError(f"setting: {setting!r} has no {about} limit; one of {known}")
    if len(name) > LONGEST or not name.isprintable():
        raise ValueError(f"name: {name[:200]!r}: write it in one line of at most {LONGEST} characters")
    try:
        return about, found, _FORMS[found].validate_python(name)
    except ValidationError as error:
        raise ValueError(f"name: {told(error.errors()[0])}") from None


def read_about(word: str) -> About:
    """Publish, dispatch or subscribe.

    Raises:
        ValueError: If it is none of them.
    """
    for about in ABOUTS:
        if about == word:
            return about
    raise ValueError(f"direction: {word[:100]!r} is not publish, dispatch or subscribe")


def read_setting(word: str) -> Setting:
    """One of the settings.

    Raises:
        ValueError: If it is none of them.
    """
    try:
        return Setting(word)
    except ValueError:
        raise ValueError(f"setting: {word[:100]!r} is not known; one of {', '.join(Setting)}") from None
