"""How the limits end at the broker once Sluice has them: the commands of Pulsar's own tool, none of them run here.

Source: pulsar-admin 4.0, `namespaces`, `topicPolicies`, `brokers`
"""

import shlex

from proxy.importing.broker_state import OfTopic
from proxy.importing.found import Found
from proxy.importing.keys import NUMBERS, PER_ADDRESS, SUBSCRIBE_PATH, SUBSCRIBE_RATE

_REMOVE = {
    "publish": "remove-publish-rate",
    "dispatch": "remove-dispatch-rate",
    "subscription_dispatch": "remove-subscription-dispatch-rate",
    "subscribe": "remove-subscribe-rate",
}


def broker_off(found: Found) -> None:
    """Add what ends the broker's own limits that were taken; to 0, as a removed key would let its file's value hold."""
    paths = {taken.path for taken in found.taken}
    keys = [key for key, number in NUMBERS.items() if number.path in paths and number.path[0] == "limits"]
    keys += [SUBSCRIBE_RATE] if SUBSCRIBE_PATH in paths else []
    found.switch_off += [_command("brokers", "update-dynamic-config", "--config", key, "--value", "0") for key in keys]
    if NUMBERS[PER_ADDRESS].path in paths:
        found.by_hand.append(
            f"{PER_ADDRESS}=0 in the broker's file, and a restart: behind a proxy the broker takes all clients for one "
            "address"
        )


def namespace_off(namespace: str, setting: str) -> str:
    """What ends a rate of a namespace: `publish`, `dispatch`, `subscription_dispatch` or `subscribe`."""
    return _command("namespaces", _REMOVE[setting], namespace)


def group_off(namespace: str) -> str:
    """What takes a namespace out of its resource group."""
    return _command("namespaces", "remove-resource-group", namespace)


def topic_off(topic: str, of: OfTopic, *, is_global: bool) -> str:
    """What ends a rate of a topic, or of one of its subscriptions, for this cluster or for all."""
    options = ["--global"] if is_global else []
    options += ["--subscription", of.subscription] if of.subscription else []
    return _command("topicPolicies", _REMOVE[of.kind], *options, topic)


def _command(*words: str) -> str:
    return shlex.join(["pulsar-admin", *words])
