"""Policies as operators write them: Pulsar's own JSON bodies, or the sections of Sluice's configuration.

What was written is kept as it was written, and so given back: `pulsar-admin` sees the numbers that it set.

Source: https://pulsar.apache.org/admin-rest-api/ (publishRate, dispatchRate, subscribeRate, resourcegroups)
"""

from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from pydantic import ValidationError

from limiter.levels import OF_ONE_TOPIC
from limiter.rates import NANOS_PER_SECOND, NOTHING_PUBLISHED, Limit, Mode, Rate, rate
from proxy.config.limits import DispatchLimit, RateLimit, TopicDispatchLimit
from proxy.config.problems import all_told
from proxy.policies.key import Key, Kind, setting_of
from proxy.policies.sections import SubscribeLimit

MOST_MESSAGES = 2**31 - 1
MOST_BYTES = 2**63 - 1
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=MOST_MESSAGES)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=MOST_BYTES)]
"""What the fields hold in Pulsar. A larger rate is shown as the most: Pulsar's tools cannot read more."""


_LONGEST_REMEMBERED = 4096
"""Characters of a kept body: 1,024 of them weigh no more than some megabytes."""


class PublishRate(msgspec.Struct, frozen=True):
    """Pulsar's PublishRate; numbers of 0 and below mean no limit."""

    publishThrottlingRateInMsg: Int32 = -1  # noqa: N815 - Pulsar's own name
    publishThrottlingRateInByte: Int64 = -1  # noqa: N815

    def limit(self) -> Limit:
        """The same, as the limiter takes it."""
        return _limit(self.publishThrottlingRateInMsg, self.publishThrottlingRateInByte, 1)

    @classmethod
    def of(cls, limit: Limit) -> "PublishRate":
        """What Pulsar's tools are to see of a limit that was not written by them: here always per second."""
        return cls(_number(limit.messages, 1, MOST_MESSAGES), _number(limit.size, 1, MOST_BYTES))


class DispatchRate(msgspec.Struct, frozen=True):
    """Pulsar's DispatchRate; numbers of 0 and below mean no limit. What is left out is 0, as with a broker."""

    dispatchThrottlingRateInMsg: Int32 = 0  # noqa: N815
    dispatchThrottlingRateInByte: Int64 = 0  # noqa: N815
    relativeToPublishRate: bool = False  # noqa: N815
    ratePeriodInSecond: Int32 = 0  # noqa: N815

    def limit(self) -> Limit:
        """The same, as the limiter takes it."""
        limit = _limit(self.dispatchThrottlingRateInMsg, self.dispatchThrottlingRateInByte, self.ratePeriodInSecond)
        return replace(limit, published=NOTHING_PUBLISHED) if self.relativeToPublishRate else limit

    @classmethod
    def of(cls, limit: Limit) -> "DispatchRate":
        """What Pulsar's tools are to see of a limit that was not written by them."""
        period_s = max([1, *(r.period_ns // NANOS_PER_SECOND for r in (limit.messages, limit.size) if r)])
        messages = _number(limit.messages, period_s, MOST_MESSAGES)
        return cls(messages, _number(limit.size, period_s, MOST_BYTES), limit.published is not None, period_s)


class SubscribeRate(msgspec.Struct, frozen=True):
    """Pulsar's SubscribeRate: how often one consumer may subscribe; 0 and below mean no limit."""

    subscribeThrottlingRatePerConsumer: Int32 = -1  # noqa: N815
    ratePeriodInSecond: Int32 = 30  # noqa: N815

    def limit(self) -> Limit:
        """The same; a whole period's worth may come at once, as with Pulsar."""
        count, period_ns = self.subscribeThrottlingRatePerConsumer, max(1, self.ratePeriodInSecond) * NANOS_PER_SECOND
        return Limit(rate(count, period_ns, burst=count)) if count > 0 else Limit()

    @classmethod
    def of(cls, limit: Limit) -> "SubscribeRate":
        """What Pulsar's tools are to see of a limit that was not written by them."""
        if limit.messages is None:
            return cls(0)
        period_s = max(1, limit.messages.period_ns // NANOS_PER_SECOND)
        return cls(_number(limit.messages, period_s, MOST_MESSAGES), period_s)


class ResourceGroup(msgspec.Struct, frozen=True):
    """Pulsar's ResourceGroup; what is not written, and numbers of 0 and below, mean no limit."""

    publishRateInMsgs: Int32 | None = None  # noqa: N815
    publishRateInBytes: Int64 | None = None  # noqa: N815
    dispatchRateInMsgs: Int32 | None = None  # noqa: N815
    dispatchRateInBytes: Int64 | None = None  # noqa: N815

    def limits(self) -> dict[Literal["publish", "dispatch"], Limit]:
        """The same, as the limiter takes it."""
        return {
            "publish": _limit(self.publishRateInMsgs or -1, self.publishRateInBytes or -1, 1),
            "dispatch": _limit(self.dispatchRateInMsgs or -1, self.dispatchRateInBytes or -1, 1),
        }


class BodyError(Exception):
    """A body cannot be read; the text says what is wrong in it."""


class Written(msgspec.Struct, frozen=True):
    """A rate as it is kept: whose form it has, and the body in that form."""

    form: Literal["pulsar", "sluice"]
    body: msgspec.Raw


T = TypeVar("T")

_PULSAR: dict[Kind, type[PublishRate | DispatchRate | SubscribeRate]] = {
    Kind.PUBLISH: PublishRate,
    Kind.DISPATCH: DispatchRate,
    Kind.SUBSCRIBE: SubscribeRate,
}
_OWN: dict[Kind, type[RateLimit | SubscribeLimit]] = {
    Kind.PUBLISH: RateLimit,
    Kind.DISPATCH: DispatchLimit,
    Kind.SUBSCRIBE: SubscribeLimit,
}
NO_LIMIT = {
    Kind.PUBLISH: PublishRate(),
    Kind.DISPATCH: DispatchRate(-1, -1, ratePeriodInSecond=1),
    Kind.SUBSCRIBE: SubscribeRate(),
}
"""What to keep where nothing is to be limited although the file says otherwise."""


def read_body(text: bytes | str, kind: type[T]) -> T:
    """Read one of the bodies above; fields that Pulsar does not know are ignored, as Pulsar does.

    Raises:
        BodyError: If it is none.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise BodyError(f"the body is not a {kind.__name__}: {error}") from None


def kept_as_pulsar_s(body: msgspec.Struct) -> str:
    """A body of Pulsar's, as the store keeps it."""
    return msgspec.json.encode(Written("pulsar", msgspec.Raw(msgspec.json.encode(body)))).decode()


def kept_as_own(body: Any) -> str:
    """A section of the configuration, as the store keeps it."""
    return msgspec.json.encode(Written("sluice", msgspec.Raw(msgspec.json.encode(body)))).decode()


def limit_of(key: Key, kept: str, mode: Mode = "enforce") -> Limit:
    """The limit that a kept rate says.

    Args:
        key: Under which it is kept.
        kept: What is kept.
        mode: That of bodies of Pulsar's, which know numbers only.

    Raises:
        BodyError: If it is none.
    """
    try:
        read = _remembered if len(kept) <= _LONGEST_REMEMBERED else _read_limit
        return read(key.kind, key.setting, kept, mode)
    except ValidationError as error:
        raise BodyError(f"{key}: {all_told(error)}") from None
    except (msgspec.DecodeError, KeyError):
        raise BodyError(f"{key}: the body is not a limit; write messages, bytes or both") from None


def _read_limit(kind: Kind, setting: str, kept: str, mode: Mode) -> Limit:
    written = read_body(kept, Written)
    if written.form == "pulsar":
        limit = read_body(bytes(written.body), _PULSAR[kind]).limit()
        return limit if limit.mode == mode else replace(limit, mode=mode)
    return _own_form(Key(kind, setting, "")).model_validate(msgspec.json.decode(written.body)).limit()


_remembered = lru_cache(maxsize=1024)(_read_limit)
"""One limit for all equal bodies: 100,000 topics have few different ones."""


def _own_form(key: Key) -> type[RateLimit | SubscribeLimit]:
    if key.kind is Kind.DISPATCH and setting_of(key)[0] in OF_ONE_TOPIC:
        return TopicDispatchLimit
    return _OWN[key.kind]


def pulsar_body(key: Key, kept: str) -> msgspec.Struct:
    """What Pulsar's tools are to see of a kept rate.

    Raises:
        BodyError: If it is none.
    """
    written, form = read_body(kept, Written), _PULSAR[key.kind]
    return read_body(bytes(written.body), form) if written.form == "pulsar" else form.of(limit_of(key, kept))


def _limit(messages: int, size: int, period_s: int) -> Limit:
    period_ns = max(1, period_s) * NANOS_PER_SECOND
    return Limit(
        rate(messages, period_ns) if messages > 0 else None,
        rate(size, period_ns) if size > 0 else None,
    )


def _number(found: Rate | None, period_s: int, most: int) -> int:
    """Tokens in a period of the answer, which need not be the rate's own; 0 for none, as in broker.conf."""
    return 0 if found is None else min(most, max(1, found.tokens * period_s * NANOS_PER_SECOND // found.period_ns))
