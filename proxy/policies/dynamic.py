"""The broker's dynamic configuration, as far as its keys are limits: each is a part of one limit.

A key that is set replaces that part of the file's limit; the other part stays. Values of 0 and below mean no limit.

Source: broker.conf, and GET /admin/v2/brokers/configuration of a broker (which keys are dynamic)
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from limiter.levels import Setting
from limiter.policies import Value
from limiter.rates import NANOS_PER_SECOND, Limit, Rate, rate
from proxy.policies.bodies import MOST_BYTES, MOST_MESSAGES, BodyError
from proxy.policies.layers import Layer, Place

_PUBLISH_BROKER: Place = ("publish", Setting.PROXY, "")
_PUBLISH_TOPIC: Place = ("publish", Setting.TOPIC_OF_BROKER, "")
_DISPATCH_BROKER: Place = ("dispatch", Setting.PROXY, "")
_DISPATCH_TOPIC: Place = ("dispatch", Setting.TOPIC_OF_BROKER, "")
_DISPATCH_SUBSCRIPTION: Place = ("dispatch", Setting.SUBSCRIPTION_OF_BROKER, "")
_SUBSCRIBE: Place = ("subscribe", Setting.TOPIC_OF_BROKER, "")
_SUBSCRIBE_PERIOD_NS = 30 * NANOS_PER_SECOND
"""Pulsar's default of subscribeRatePeriodPerConsumerInSecond."""


def _messages(limit: Limit, value: int) -> Limit:
    return replace(limit, messages=rate(value) if value > 0 else None, peak_messages=None)


def _size(limit: Limit, value: int) -> Limit:
    return replace(limit, size=rate(value) if value > 0 else None, peak_size=None)


def _subscribes(limit: Limit, value: int) -> Limit:
    period_ns = limit.messages.period_ns if limit.messages else _SUBSCRIBE_PERIOD_NS
    return replace(limit, messages=Rate(value, period_ns, value) if value > 0 else None)


def _subscribe_period(limit: Limit, value: int) -> Limit:
    if limit.messages is None or value <= 0:
        return limit
    return replace(limit, messages=replace(limit.messages, period_ns=value * NANOS_PER_SECOND))


_PARTS: dict[str, tuple[Place, Callable[[Limit, int], Limit]]] = {
    "brokerPublisherThrottlingMaxMessageRate": (_PUBLISH_BROKER, _messages),
    "brokerPublisherThrottlingMaxByteRate": (_PUBLISH_BROKER, _size),
    "maxPublishRatePerTopicInMessages": (_PUBLISH_TOPIC, _messages),
    "maxPublishRatePerTopicInBytes": (_PUBLISH_TOPIC, _size),
    "dispatchThrottlingRateInMsg": (_DISPATCH_BROKER, _messages),
    "dispatchThrottlingRateInByte": (_DISPATCH_BROKER, _size),
    "dispatchThrottlingRatePerTopicInMsg": (_DISPATCH_TOPIC, _messages),
    "dispatchThrottlingRatePerTopicInByte": (_DISPATCH_TOPIC, _size),
    "dispatchThrottlingRatePerSubscriptionInMsg": (_DISPATCH_SUBSCRIPTION, _messages),
    "dispatchThrottlingRatePerSubscriptionInByte": (_DISPATCH_SUBSCRIPTION, _size),
    "subscribeThrottlingRatePerConsumer": (_SUBSCRIBE, _subscribes),
    "subscribeRatePeriodPerConsumerInSecond": (_SUBSCRIBE, _subscribe_period),
}
"""Where each key belongs, and how it changes the limit there."""

DYNAMIC_KEYS = frozenset(_PARTS)
_NUMBER = re.compile(r"-?[0-9]{1,19}")


def read_dynamic(name: str, text: str) -> int:
    """The value of a key.

    Raises:
        ValueError: If it is not a number that Pulsar could hold.
    """
    value, most = int(text) if _NUMBER.fullmatch(text) else None, _most(name)
    if value is None or not -most - 1 <= value <= most:
        bits = most.bit_length() + 1
        raise ValueError(f"{name}: {text[:60]!r} is not a whole number of {bits} bits; 0 or -1 means no limit")
    return value


def _most(name: str) -> int:
    """What its field of Pulsar's can hold: bytes are `long`, messages, subscribes and seconds `int`."""
    return MOST_BYTES if name in _PARTS and _PARTS[name][1] is _size else MOST_MESSAGES


def place_of(name: str) -> Place:
    """Which limit a key is a part of."""
    return _PARTS[name][0]


def dynamic_value(place: Place, values: Mapping[str, str], file: Value | None) -> Value | None:
    """The limit at a place under the keys that are set; None if none of them is about it.

    Args:
        place: Which limit.
        values: All keys that are set.
        file: What the file says there.
    """
    limit, is_set = file.limit if file else Limit(), False
    for name, (of, part) in _PARTS.items():
        if of == place and name in values:
            limit, is_set = part(limit, read_dynamic(name, values[name])), True
    return Value(limit, Layer.DYNAMIC.origin) if is_set else None


def check_dynamic(name: str, kept: str | None) -> None:
    """Whether a key can be set so.

    Raises:
        BodyError: If it cannot.
    """
    if name not in DYNAMIC_KEYS:
        raise BodyError(f"{name}: is no dynamic configuration that Sluice serves")
    if kept is not None:
        try:
            read_dynamic(name, kept)
        except ValueError as error:
            raise BodyError(str(error)) from None
