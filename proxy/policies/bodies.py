"""The written forms of a policy's value: bodies of Pulsar's admin REST, and sections of Sluice's configuration.

A value is kept and returned in the form in which it was written: `pulsar-admin` sees the numbers that it set.

A resource group's rates are kept in Pulsar's form, or each direction in Sluice's own:

{"publishRateInMsgs": 500, …}                                 Pulsar's: all four rates
{"form": "sluice", "body": {"publish": {"messages": 500}}}    own: the file's value holds where there is no key;
                                                              null limits nothing, whatever the file says
{…, "numbers": ["publish"]}                                   Pulsar's tools set the numbers of these directions

Pulsar's numbers have no mode: the file's mode holds for them.

Source: https://pulsar.apache.org/admin-rest-api/ (publishRate, dispatchRate, subscribeRate, resourcegroups)
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from pydantic import ValidationError, model_validator

from limiter.levels import About, Setting
from limiter.token_bucket import DIRECTIONS, NANOS_PER_SECOND, NOTHING_PUBLISHED, Direction, Limit, Mode, Rate, rate
from proxy import typed_json
from proxy.config.limits import DispatchLimit, RateLimit, TopicDispatchLimit
from proxy.config.sources import cut, problems_line
from proxy.config.values import SPANS_NS, CountPerPeriod, size_text
from proxy.mistakes import ConfigSection
from proxy.policies import large_json
from proxy.policies.keys import PolicyKey, PolicyKind, rate_key, setting_of

Section = dict[str, str | int | bool]
"""Keys of a limit: messages, bytes, their bursts and peaks, mode, relativeToPublishRate."""

_NS_PER_MS = SPANS_NS["ms"]
_MOST_EXACT = 2**53 - 1
"""The largest number of RFC 8259's range in which all readers of JSON agree exactly."""
_LONGEST_FIRST = sorted(SPANS_NS.items(), key=lambda span: -span[1])


class SubscribeLimit(ConfigSection):
    """A rate of subscribing of one consumer: `messages: 5/30s`, all at once if need be, as with Pulsar."""

    messages: CountPerPeriod

    @model_validator(mode="before")
    @classmethod
    def _has_messages_alone(cls, written: Any) -> Any:
        given = written if isinstance(written, dict) else {}
        others = [key for key in DispatchLimit.model_fields if key != "messages" and key in given]
        if others:
            raise ValueError(f"{', '.join(others)}: a subscribe limit has messages alone, which may all come at once")
        return written

    def limit(self) -> Limit:
        """Return the limit that the limiter takes."""
        count, period_ns = self.messages
        return Limit(rate(count, period_ns, burst=count))


def section_of(about: About, limit: Limit) -> Section:
    """Return the section to write for a limit, without defaults; empty for a limit that limits nothing."""
    section: Section = {}
    if about == "subscribe":
        return {"messages": count_text(limit.messages)} if limit.messages else section
    if limit.messages:
        section |= _part("messages", limit.messages, limit.peak_messages)
    if limit.size:
        section |= _part("bytes", limit.size, limit.peak_size)
    if section and limit.mode != "enforce":
        section["mode"] = limit.mode
    if section and limit.published is not None:
        section["relativeToPublishRate"] = True
    return section


def section_text(section: Section) -> str:
    """Return a section in one line, for people."""
    return ", ".join(f"{key} {_plain(value)}" for key, value in section.items()) or "no limit"


def count_text(value: Rate) -> str | int:
    """Return a rate without a unit, as the configuration writes it."""
    return _per(str(value.tokens), value.period_ns)


def _part(kind: str, sustained: Rate, peak: Rate | None) -> Section:
    text = count_text if kind == "messages" else _bytes_text
    part: Section = {kind: text(sustained)}
    if peak or sustained.burst != rate(sustained.tokens, sustained.period_ns).burst:
        part[f"burst_{kind}"] = _exact(sustained.burst) if kind == "messages" else _size_text(sustained.burst)
    if peak:
        part[f"peak_{kind}"] = text(peak)
    return part


def _bytes_text(value: Rate) -> str | int:
    return _per(str(_size_text(value.tokens)), value.period_ns)


def _size_text(size: int) -> str | int:
    text = size_text(size)
    return _exact(size) if text.isdigit() else text


def _per(amount: str, period_ns: int) -> str | int:
    if period_ns == NANOS_PER_SECOND:
        return _exact(int(amount)) if amount.isdigit() else amount
    return f"{amount}/{_span_text(period_ns)}"


def _exact(value: int) -> str | int:
    """Return a number as JSON has it; as text where readers of JSON, as browsers, would round it."""
    return value if value <= _MOST_EXACT else str(value)


def _span_text(period_ns: int) -> str:
    for unit, worth in _LONGEST_FIRST:
        if period_ns % worth == 0:
            return unit if period_ns == worth else f"{period_ns // worth}{unit}"
    whole, part = divmod(period_ns, _NS_PER_MS)
    return f"{whole}.{part:06d}".rstrip("0") + "ms"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


MOST_MESSAGES = 2**31 - 1
MOST_BYTES = 2**63 - 1
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=MOST_MESSAGES)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=MOST_BYTES)]
"""The ranges of Pulsar's fields. A larger rate is shown as the most: Pulsar's tools cannot read more."""


_LONGEST_REMEMBERED = 4096
"""Characters of a kept body: the 1,024 bodies of the cache take some megabytes at most."""


class PublishRate(msgspec.Struct, frozen=True):
    """Pulsar's PublishRate; numbers of 0 and below mean no limit."""

    publishThrottlingRateInMsg: Int32 = -1  # noqa: N815 - Pulsar's own name
    publishThrottlingRateInByte: Int64 = -1  # noqa: N815

    def limit(self) -> Limit:
        """Return the limit that the limiter takes."""
        return _limit(self.publishThrottlingRateInMsg, self.publishThrottlingRateInByte, 1)

    @classmethod
    def of(cls, limit: Limit) -> "PublishRate":
        """Return the body that Pulsar's tools get of a limit that they did not write: always per second."""
        return cls(_number(limit.messages, 1, MOST_MESSAGES), _number(limit.size, 1, MOST_BYTES))


class DispatchRate(msgspec.Struct, frozen=True):
    """Pulsar's DispatchRate; numbers of 0 and below mean no limit. A missing number is 0, as with a broker.

    A missing period is 1 s, which a broker shows as 0: what is read here can be set again.
    """

    dispatchThrottlingRateInMsg: Int32 = 0  # noqa: N815
    dispatchThrottlingRateInByte: Int64 = 0  # noqa: N815
    relativeToPublishRate: bool = False  # noqa: N815
    ratePeriodInSecond: Int32 = 1  # noqa: N815

    def limit(self) -> Limit:
        """Return the limit that the limiter takes."""
        limit = _limit(self.dispatchThrottlingRateInMsg, self.dispatchThrottlingRateInByte, self.ratePeriodInSecond)
        return replace(limit, published=NOTHING_PUBLISHED) if self.relativeToPublishRate else limit

    @classmethod
    def of(cls, limit: Limit) -> "DispatchRate":
        """Return the body that Pulsar's tools get of a limit that they did not write."""
        period_s = max([1, *(r.period_ns // NANOS_PER_SECOND for r in (limit.messages, limit.size) if r)])
        messages = _number(limit.messages, period_s, MOST_MESSAGES)
        return cls(messages, _number(limit.size, period_s, MOST_BYTES), limit.published is not None, period_s)


class SubscribeRate(msgspec.Struct, frozen=True):
    """Pulsar's SubscribeRate: how often one consumer may subscribe; 0 and below mean no limit."""

    subscribeThrottlingRatePerConsumer: Int32 = -1  # noqa: N815
    ratePeriodInSecond: Int32 = 30  # noqa: N815

    def limit(self) -> Limit:
        """Return the limit that the limiter takes; a whole period's worth may come at once, as with Pulsar."""
        count, period_ns = self.subscribeThrottlingRatePerConsumer, max(1, self.ratePeriodInSecond) * NANOS_PER_SECOND
        return Limit(rate(count, period_ns, burst=count)) if count > 0 else Limit()

    @classmethod
    def of(cls, limit: Limit) -> "SubscribeRate":
        """Return the body that Pulsar's tools get of a limit that they did not write."""
        if limit.messages is None:
            return cls(0)
        period_s = max(1, limit.messages.period_ns // NANOS_PER_SECOND)
        return cls(_number(limit.messages, period_s, MOST_MESSAGES), period_s)


class ResourceGroup(msgspec.Struct, frozen=True):
    """Pulsar's ResourceGroup; missing numbers, and numbers of 0 and below, mean no limit."""

    publishRateInMsgs: Int32 | None = None  # noqa: N815
    publishRateInBytes: Int64 | None = None  # noqa: N815
    dispatchRateInMsgs: Int32 | None = None  # noqa: N815
    dispatchRateInBytes: Int64 | None = None  # noqa: N815

    def limits(self) -> dict[Literal["publish", "dispatch"], Limit]:
        """Return the limits that the limiter takes, by direction."""
        return {
            "publish": _limit(self.publishRateInMsgs or -1, self.publishRateInBytes or -1, 1),
            "dispatch": _limit(self.dispatchRateInMsgs or -1, self.dispatchRateInBytes or -1, 1),
        }


T = TypeVar("T")


class BodyError(Exception):
    """A body cannot be read; the text names the mistake."""


MOST_REQUESTED = 64 * 1024
"""Most bytes of the body of one policy."""


def read_json(text: bytes) -> Any:
    """Return the value of a JSON text of any size, in steps.

    Raises:
        ValueError: If it is no JSON.
        BodyError: If a key occurs twice in one object, with its name: readers take the last one, and drop the others.
    """
    try:
        return large_json.read(text)
    except large_json.TwiceError as error:
        key = cut(repr(error.key))
        raise BodyError(f"{key}: this key occurs twice in one object; leave one out") from None


def requested_body(text: bytes, kind: type[T], name: str = "", form: str = "") -> T:
    """Read the JSON body of a request. A key occurs once in an object: JSON readers drop all values but the last.

    Args:
        text: The body.
        kind: The type of the body. Fields that it does not have are ignored, as Pulsar does, unless it forbids them.
        name: The name of the type for the caller; the class has it if this is empty.
        form: The form that the body must have, for the caller of one that is not of this type; empty: the error.

    Raises:
        BodyError: If it is none, or a key occurs twice in one object.
    """
    type_name = name or kind.__name__
    if kind is not Any:
        return _typed(text, kind, type_name, form)[0]
    try:
        body: T = read_json(text)
    except ValueError as error:
        raise BodyError(f"the body is not a {type_name}: {form or error}") from None
    return body


def requested_fields(text: bytes, kind: type[T]) -> tuple[T, frozenset[str]]:
    """Read the JSON body of a request as `requested_body` does; return it, and the keys that it has.

    Raises:
        BodyError: If it is none, or a key occurs twice in one object.
    """
    body, written = _typed(text, kind, kind.__name__, "")
    return body, frozenset(written)


def _typed(text: bytes, kind: type[T], type_name: str, form: str) -> tuple[T, Any]:
    """Return a body as its type, and as JSON's own values."""
    if len(text) > MOST_REQUESTED:
        raise BodyError(f"the body has {len(text)} bytes; a {type_name} has at most {MOST_REQUESTED // 1024} KiB")
    try:
        body = typed_json.decode(text, kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise BodyError(f"the body is not a {type_name}: {form or error}") from None
    try:
        return body, read_json(text)
    except ValueError:  # msgspec has read it: only numbers that json refuses are left
        return body, typed_json.decode(text, dict[str, msgspec.Raw]) if isinstance(body, msgspec.Struct) else body


_MOST_NULLS = 20
"""Most nulls of a body that its error names."""


def check_for_nulls(text: bytes, written: Any) -> None:
    """Check that each key of limits in Sluice's own form has a value, as in YAML.

    A template whose variable is empty writes null; it would take the limits of a plan or of the file out of force.

    Args:
        text: The body.
        written: The body's values.

    Raises:
        BodyError: With the keys whose value, or whose element, is null.
    """
    if b"null" not in text:
        return
    nulls = _nulls(written)
    places = [cut(".".join(place)) for place in islice(nulls, _MOST_NULLS)]
    if places:
        more = " and others" if next(nulls, None) else ""
        raise BodyError(f"{', '.join(places)}{more}: nothing is written here; leave the key out for its default")


def _nulls(written: Any) -> Iterator[tuple[str, ...]]:
    """Yield the place of each null in nested dicts and lists, in their order."""
    place: list[str] = []
    around = [_members(written)]
    while around:
        key, value = next(around[-1], (None, None))
        if key is None:
            around.pop()
            del place[-1:]
        elif value is None:
            yield (*place, key)
        elif isinstance(value, dict | list):
            place.append(key)
            around.append(_members(value))


def _members(container: Any) -> Iterator[tuple[str | None, Any]]:
    """Return an iterator of the keys and values of a dict, or of the places and elements of a list."""
    if isinstance(container, dict):
        return iter(container.items())
    return ((str(place), value) for place, value in enumerate(container if isinstance(container, list) else ()))


class KeptRate(msgspec.Struct, frozen=True):
    """A rate as it is kept: the form, and the body in that form."""

    form: Literal["pulsar", "sluice"]
    body: msgspec.Raw


_PULSAR: dict[PolicyKind, type[PublishRate | DispatchRate | SubscribeRate]] = {
    PolicyKind.PUBLISH: PublishRate,
    PolicyKind.DISPATCH: DispatchRate,
    PolicyKind.SUBSCRIBE: SubscribeRate,
}
_OWN: dict[PolicyKind, type[RateLimit | SubscribeLimit]] = {
    PolicyKind.PUBLISH: RateLimit,
    PolicyKind.DISPATCH: DispatchLimit,
    PolicyKind.SUBSCRIBE: SubscribeLimit,
}
NO_LIMIT = {
    PolicyKind.PUBLISH: PublishRate(),
    PolicyKind.DISPATCH: DispatchRate(-1, -1, ratePeriodInSecond=1),
    PolicyKind.SUBSCRIBE: SubscribeRate(),
}
"""The kept body of a place where nothing is limited although the file says otherwise."""


def read_body(text: bytes | str, kind: type[T]) -> T:
    """Read one of the bodies above as it is kept.

    Raises:
        BodyError: If it is none.
    """
    try:
        return typed_json.decode(text, kind)
    except msgspec.DecodeError as error:
        raise BodyError(f"the body is not a {kind.__name__}: {error}") from None


NO_RATE = -1
"""Pulsar's number for no limit. Lower numbers are refused: a broker takes them for no limit, and a slip would put the
configuration file's limit out of force."""


PERIOD = "ratePeriodInSecond"


def check_numbers(body: msgspec.Struct) -> None:
    """Check the numbers of a body in Pulsar's form before it is set.

    Raises:
        BodyError: If a number is below -1, or a period below 0. Of a period of 0 a broker makes a second.
    """
    for name, value in msgspec.structs.asdict(body).items():
        if name == PERIOD and value < 0:
            raise BodyError(f"{name}: {value} is no period: write seconds from 1, or leave it out")
        if isinstance(value, int) and value < NO_RATE:
            raise BodyError(f"{name}: {value} is no rate: write -1 for no limit, or delete the rate that is set here")


def kept_as_pulsar_s(body: msgspec.Struct) -> str:
    """Return a body of Pulsar's, as the store keeps it."""
    return msgspec.json.encode(KeptRate("pulsar", msgspec.Raw(msgspec.json.encode(body)))).decode()


def kept_as_own(body: Any) -> str:
    """Return a section of the configuration, as the store keeps it."""
    return msgspec.json.encode(KeptRate("sluice", msgspec.Raw(msgspec.json.encode(body)))).decode()


def is_own_form(kept: str | None) -> bool:
    """Return whether a kept rate has Sluice's own form, in which bursts are written."""
    return kept is not None and read_body(kept, KeptRate).form == "sluice"


def limit_of(key: PolicyKey, kept: str, mode: Mode = "enforce") -> Limit:
    """Return the limit of a kept rate.

    Args:
        key: Under which it is kept.
        kept: The body as it is kept.
        mode: The mode of a limit in Pulsar's form, which knows numbers only.

    Raises:
        BodyError: If it is none.
    """
    try:
        read = _remembered if len(kept) <= _LONGEST_REMEMBERED else _read_limit
        return read(key.kind, key.setting, kept, mode)
    except ValidationError as error:
        raise BodyError(f"{key.shown}: {problems_line(error, _own_form(key))}") from None
    except (msgspec.DecodeError, KeyError):
        raise BodyError(f"{key.shown}: the body is not a limit; write messages, bytes or both") from None


def _read_limit(kind: PolicyKind, setting: str, kept: str, mode: Mode) -> Limit:
    written = read_body(kept, KeptRate)
    if written.form == "pulsar":
        limit = read_body(bytes(written.body), _PULSAR[kind]).limit()
        return limit if limit.mode == mode else replace(limit, mode=mode)
    return _own_form(PolicyKey(kind, setting, "")).model_validate(msgspec.json.decode(written.body)).limit()


_remembered = lru_cache(maxsize=1024)(_read_limit)
"""Reads a body, and returns one limit for all equal bodies: 100,000 topics have few different ones."""


def _own_form(key: PolicyKey) -> type[RateLimit | SubscribeLimit]:
    if key.kind is PolicyKind.DISPATCH and setting_of(key)[0].level.is_of_one_topic:
        return TopicDispatchLimit
    return _OWN[key.kind]


def pulsar_body(key: PolicyKey, kept: str) -> msgspec.Struct:
    """Return the body that Pulsar's tools get of a kept rate.

    Raises:
        BodyError: If it is none.
    """
    written, form = read_body(kept, KeptRate), _PULSAR[key.kind]
    return read_body(bytes(written.body), form) if written.form == "pulsar" else form.of(limit_of(key, kept))


def _limit(messages: int, size: int, period_s: int) -> Limit:
    period_ns = max(1, period_s) * NANOS_PER_SECOND
    return Limit(
        rate(messages, period_ns) if messages > 0 else None,
        rate(size, period_ns) if size > 0 else None,
    )


def _number(value: Rate | None, period_s: int, most: int) -> int:
    """Tokens in a period of the answer, which need not be the rate's own; 0 for none, as in broker.conf."""
    return 0 if value is None else min(most, max(1, value.tokens * period_s * NANOS_PER_SECOND // value.period_ns))


OwnGroup = dict[Direction, dict[str, Any] | None]
"""The own form's body."""


class KeptGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource group as it is kept, in Sluice's own form.

    Args:
        form: The form of the body: Pulsar's or Sluice's.
        body: The limit of each direction.
        numbers: The directions whose mode is the file's.
    """

    form: Literal["sluice"]
    body: OwnGroup
    numbers: tuple[Direction, ...] = ()


class _Form(msgspec.Struct, frozen=True):
    form: str | None = None


def group_limits(name: str, kept: str, modes: Mapping[About, Mode]) -> dict[About, Limit]:
    """Return the limits of a kept group, without directions for which it has no value.

    Args:
        name: The group's.
        kept: The body as it is kept.
        modes: The file's modes other than `enforce`.

    Raises:
        BodyError: If it is none.
    """
    own = own_group(kept)
    if own is None:
        limits = read_body(kept, ResourceGroup).limits()
        return {direction: replace(limit, mode=modes.get(direction, "enforce")) for direction, limit in limits.items()}
    return {direction: _group_limit(name, direction, own, modes.get(direction, "enforce")) for direction in own.body}


def own_group(kept: str) -> KeptGroup | None:
    """Return a kept group that has Sluice's own form.

    Raises:
        BodyError: If it is no group at all.
    """
    if read_body(kept, _Form).form is None:
        return None
    return read_body(kept, KeptGroup)


def kept_as_own_group(body: OwnGroup, numbers: tuple[Direction, ...] = ()) -> str:
    """Return the own form, as the store keeps it."""
    return msgspec.json.encode(KeptGroup("sluice", body, numbers)).decode()


def pulsar_group(limits: dict[Direction, Limit | None]) -> ResourceGroup:
    """Return the body that Pulsar's tools get of a group that they did not write: always per second."""
    both = [limits.get(direction) or Limit() for direction in DIRECTIONS]
    return ResourceGroup(
        *(
            None if rate is None else min(most, max(1, round(rate.per_second)))
            for limit in both
            for rate, most in ((limit.messages, MOST_MESSAGES), (limit.size, MOST_BYTES))
        )
    )


def _group_limit(name: str, direction: Direction, own: KeptGroup, mode: Mode) -> Limit:
    section = own.body[direction]
    if section is None:
        return Limit()
    section = section | {"mode": mode} if direction in own.numbers else section
    return limit_of(rate_key(direction, Setting.RESOURCE_GROUP, name), kept_as_own(section))
