"""The configuration's `limits`: a value for each setting of `limiter.levels`, made of its record."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from limiter.levels import (
    ADDRESS,
    GROUP,
    LEVELS,
    NAME,
    NAMESPACE,
    PARTITIONED_TOPIC,
    PRODUCER,
    ROLE,
    SUBSCRIPTION,
    TENANT,
    About,
    Part,
    Setting,
    SettingRecord,
)
from limiter.names import EACH, MOST_FORMS, form_of, is_pattern
from limiter.token_bucket import DIRECTIONS, NOTHING_PUBLISHED, Limit, Mode, Rate, rate
from protocol.topic_name import parse_topic
from proxy.config.values import (
    Count,
    CountPerPeriod,
    Flag,
    Name,
    NamespaceName,
    NamespacePattern,
    NetworkName,
    PerPeriod,
    RoleName,
    Size,
    TenantName,
    TenantPattern,
    WholeTopic,
    network_name,
)
from proxy.mistakes import BOUNDED, ConfigSection, Contradiction, Place, without_contradictions

_TENTH = "default: a tenth of a period's worth"
RELATIVE = "relativeToPublishRate"


class RateLimit(ConfigSection):
    """Messages and bytes per second (or `/min`, `/h`), with room for bursts."""

    messages: CountPerPeriod | None = Field(None, description="messages per second, or 30/min")
    bytes: PerPeriod | None = Field(None, description="bytes per second, or 10MB/min")
    burst_messages: Count | None = Field(None, gt=0, description=f"messages at once; {_TENTH}")
    burst_bytes: Size | None = Field(None, gt=0, description=f"bytes at once; {_TENTH}")
    peak_messages: CountPerPeriod | None = Field(None, description="highest rate while burst_messages last")
    peak_bytes: PerPeriod | None = Field(None, description="highest rate while burst_bytes last")
    mode: Mode = Field(
        "enforce", description="`observe` holds nothing and counts what would be held; `reject` (publish only) refuses"
    )

    @model_validator(mode="before")
    @classmethod
    def _relative_where_one_topic_is(cls, values: Any) -> Any:
        if isinstance(values, dict) and RELATIVE in values and RELATIVE not in cls.model_fields:
            raise ValueError(f"{RELATIVE} is for the dispatch of a topic or of a subscription; leave it out here")
        return values

    @model_validator(mode="after")
    def _rate_for_each_burst(self) -> "RateLimit":
        for kind in ("messages", "bytes"):
            if getattr(self, f"burst_{kind}") is not None and getattr(self, kind) is None:
                raise ValueError(f"burst_{kind} needs {kind}: a burst without a rate limits nothing")
            if getattr(self, f"peak_{kind}") is not None:
                self._check_peak(kind)
        if self.messages is None and self.bytes is None:
            raise ValueError("write messages, bytes or both; leave the section out for no limit")
        return self

    def _check_peak(self, kind: str) -> None:
        peak, sustained = getattr(self, f"peak_{kind}"), getattr(self, kind)
        if sustained is None or getattr(self, f"burst_{kind}") is None:
            raise ValueError(f"peak_{kind} needs {kind} and burst_{kind}: the peak holds while that burst lasts")
        if peak[0] * sustained[1] <= sustained[0] * peak[1]:
            raise ValueError(f"peak_{kind} must be above {kind}: a peak at or below it would be the limit itself")

    def limit(self) -> Limit:
        """Return the limits of this section, as the limiter takes them."""
        return Limit(
            _rate(self.messages, self.burst_messages),
            _rate(self.bytes, self.burst_bytes),
            _rate(self.peak_messages, None),
            _rate(self.peak_bytes, None),
            self.mode,
        )


class DispatchLimit(RateLimit):
    """The dispatch rate of consumers. It has no mode `reject`: a delivery cannot be refused."""

    mode: Literal["enforce", "observe"] = Field("enforce", description="`observe` counts what would be held")


class TopicDispatchLimit(DispatchLimit):
    """The dispatch rate of the consumers of one topic or of one subscription."""

    relativeToPublishRate: Flag = Field(  # noqa: N815 - Pulsar's name
        default=False, description="dispatch of a topic or subscription only: the topic's publish rate comes on top"
    )

    def limit(self) -> Limit:
        """Return the limits of this section, as the limiter takes them."""
        limit = super().limit()
        return replace(limit, published=NOTHING_PUBLISHED) if self.relativeToPublishRate else limit


def _once(form: type[RateLimit]) -> BeforeValidator:
    """Reads equal sections once: files of 100,000 topics repeat a few. Wrong sections go to the usual validator."""

    @lru_cache(maxsize=1024)
    def read(items: tuple[tuple[str, type, Any], ...]) -> RateLimit:
        return form.model_validate({key: value for key, _, value in items})

    def known(value: Any) -> Any:
        try:
            return read(tuple((key, type(part), part) for key, part in value.items()))  # 1 is no True here
        except (AttributeError, TypeError, ValidationError):
            return value

    return BeforeValidator(known)


_PublishLimit = Annotated[RateLimit | None, _once(RateLimit)]
_DispatchLimit = Annotated[DispatchLimit | None, _once(DispatchLimit)]
_TopicDispatchLimit = Annotated[TopicDispatchLimit | None, _once(TopicDispatchLimit)]


def _rate(value: tuple[int, int] | None, burst: int | None) -> Rate | None:
    return None if value is None else rate(value[0], value[1], burst)


_DIRECTIONS: Mapping[About, str] = {
    "publish": "from producers to the broker",
    "dispatch": "from the broker to consumers",
}
_NAMES: Mapping[Part, Any] = {
    TENANT: TenantPattern,
    NAMESPACE: NamespacePattern,
    PARTITIONED_TOPIC: WholeTopic,
    SUBSCRIPTION: Name,
    GROUP: Name,
    PRODUCER: Name,
    ROLE: RoleName,
    ADDRESS: NetworkName,
}


def name_type(part: Part) -> Any:
    """Return the type of the names that settings have for a property of streams."""
    return _NAMES.get(part) or Annotated[str, AfterValidator(part.names.parse)]


def _rates(records: Iterable[SettingRecord]) -> dict[str, Any]:
    """Return the fields of a section: rates of each topic first, then totals and narrower settings."""
    return {
        record.file[-1].format(about): (_kind_of(record, about), Field(None, description=record.meaning or meaning))
        for record in sorted(records, key=lambda record: record.file[-1] != "{}")
        for about, meaning in _DIRECTIONS.items()
        if about in record.abouts
    }


def _kind_of(record: SettingRecord, about: About) -> Any:
    if about == "publish":
        return _PublishLimit
    return _TopicDispatchLimit if Setting(record.word).level.is_of_one_topic else _DispatchLimit


_RECORDS = [setting.record for setting in Setting]


def _within(section: str) -> type[ConfigSection]:
    """Return the rates of all settings whose values are directly in this section."""
    records = [record for record in _RECORDS if record.file[0] == section and NAME not in record.file[2:]]
    return create_model(section, __base__=ConfigSection, __module__=__name__, **_rates(records))


class Both(_within("proxy")):  # type: ignore[misc]  # its fields are those of records
    """A limit for each direction."""


class TopicBoth(_within("each_topic")):  # type: ignore[misc]
    """A limit of each topic for each direction."""


class ProducerLimits(_within("producers")):  # type: ignore[misc]
    """The limit of a producer."""


class ResourceGroupLimits(_within("resource_groups")):  # type: ignore[misc]
    """A limit that tenants and namespaces share."""

    tenants: tuple[TenantName, ...] = Field((), description="tenants whose namespaces share it")
    namespaces: tuple[NamespaceName, ...] = Field(
        (), description="namespaces that share it, even if their tenant is in another group"
    )


class Plan(_within("namespaces")):  # type: ignore[misc]
    """Limits that tenants and namespaces have by the plan's name; those of tenants are `publish` and `dispatch`."""

    subscribe: CountPerPeriod | None = Field(
        None, description="how often one consumer may subscribe to one of its topics, as 5/30s"
    )


_PLAN = "name in `plans`; keys beside it hold in place of the plan's; a plan alone may be written as `NAME: PLAN`"


class NamespaceLimits(Plan):
    """Limits of one namespace, or of each one that a pattern matches."""

    plan: Name | None = Field(None, description=_PLAN)


class TenantLimits(_within("tenants")):  # type: ignore[misc]
    """Limits of one tenant, or of each one that a pattern matches."""

    plan: Name | None = Field(None, description=_PLAN)


class SubscriptionLimits(_within("each_subscription")):  # type: ignore[misc]
    """The limit of one subscription."""


class TopicLimits(_within("topics")):  # type: ignore[misc]
    """Limits of one topic; of a partitioned one, of each partition and of all together."""

    subscribe: CountPerPeriod | None = Field(
        None, description="how often one consumer may subscribe to it, in place of the namespace's value"
    )
    subscriptions: dict[Annotated[Name, BOUNDED], Annotated[SubscriptionLimits, BOUNDED]] = Field(
        default_factory=dict, description="NAME is a subscription's; in place of subscription_dispatch"
    )


_OWN_SECTIONS: Mapping[str, tuple[type[BaseModel], str]] = {
    "tenants": (
        TenantLimits,
        "NAME is a tenant, a [pattern](limits.md#patterns-and-plans), or * for each other; of all its topics together",
    ),
    "namespaces": (
        NamespaceLimits,
        "NAME is tenant/namespace, or a [pattern](limits.md#patterns-and-plans) as acme/* for each",
    ),
    "resource_groups": (ResourceGroupLimits, "of all topics together that are attached to the group"),
    "topics": (TopicLimits, "NAME is the full topic name"),
    "each_subscription": (SubscriptionLimits, ""),
    "producers": (ProducerLimits, ""),
}
"""Sections with more than rates, or with a docstring of their own, and the meaning of those that settings share."""


def _section(record: SettingRecord) -> tuple[Any, Any]:
    """Return the field of the section with a setting's values."""
    word, is_named = record.file[0], record.file[1] == NAME
    model, meaning = _OWN_SECTIONS.get(word) or (_usual_section(record), "")
    meaning = meaning or record.section_meaning
    if is_named:
        by_name: Any = dict
        name: Any = Annotated[name_type(record.named[-1]), BOUNDED]
        has_plan = "plan" in model.model_fields
        plan = (
            BeforeValidator(_with_plan, json_schema_input_type=model | str)
            if has_plan
            else BeforeValidator(_without_plan)
        )
        section: Any = Annotated[model, plan, BOUNDED]
        return by_name[name, section], Field(default_factory=dict, description=meaning)
    return model | None, Field(None, description=meaning)


def _with_plan(value: Any) -> Any:
    return {"plan": value} if isinstance(value, str) else value


def _without_plan(value: Any) -> Any:
    if isinstance(value, str):
        problem = "this is text; a section of keys belongs here, as only tenants and namespaces may have a plan"
        raise ValueError(problem)  # noqa: TRY004 - pydantic takes it as a mistake
    return value


def _usual_section(record: SettingRecord) -> type[BaseModel]:
    if record.meaning or len(record.abouts) < len(DIRECTIONS):
        return _within(record.file[0])
    return TopicBoth if Setting(record.word).level.is_of_one_topic else Both


def _sections() -> dict[str, Any]:
    meaning = "NAME is a plan's, see [Patterns and plans](limits.md#patterns-and-plans)"
    plans: Any = Field(default_factory=dict, description=meaning)
    fields: dict[str, Any] = {"plans": (dict[Annotated[Name, BOUNDED], Annotated[Plan, BOUNDED]], plans)}
    for record in _RECORDS:
        if record.file[0] not in fields:
            fields[record.file[0]] = _section(record)
    return fields


_Contradictions = Iterator[Contradiction]
_SECTIONS_OF_PATTERNS = tuple(
    dict.fromkeys([record.file[0] for level in LEVELS for record in level.settings if record.may_have_forms])
)
"""The keys of `limits` whose names may be patterns."""


def _contradictions(limits: Mapping[str, Any]) -> _Contradictions:
    """Yield what contradicts each other in limits as they are written, though other parts of them may be wrong."""
    for section in _SECTIONS_OF_PATTERNS:
        yield from _of_forms(section, _named(limits, section))
    for section, model in (("tenants", TenantLimits), ("namespaces", NamespaceLimits)):
        yield from _of_plans(section, model, _named(limits, section), _named(limits, "plans"))
    for section, kept in _KEPT_NAMES.items():
        yield from _occurring_twice(section, _named(limits, section), kept)
    yield from _of_groups(_named(limits, "resource_groups"))


def _named(limits: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    written = limits.get(section)
    return written if isinstance(written, Mapping) else {}


def _is_text(name: object) -> bool:
    return isinstance(name, str)


def _of_forms(section: str, names: Iterable[Any]) -> _Contradictions:
    """Patterns have few forms: each stream that opens is compared with each form."""
    patterns = list(filter(is_pattern, filter(_is_text, names)))
    forms = set()
    for name in patterns:
        with suppress(ValueError):
            forms.add(form_of(name))
    if len(forms) > MOST_FORMS:
        text = (
            f"the patterns have {len(forms)} forms, and at most {MOST_FORMS} are allowed: patterns are of one form if "
            "they have as many characters before and after each *; use fewer lengths"
        )
        yield Contradiction((section,), text, tuple([(section, name) for name in patterns]), is_sum=True)


def _of_plans(
    section: str, model: type[BaseModel], names: Mapping[str, Any], plans: Mapping[str, Any]
) -> _Contradictions:
    for name, value in names.items():
        plan = value.get("plan") if isinstance(value, Mapping) else getattr(value, "plan", value)
        if not isinstance(plan, str):
            continue
        if plan not in plans:
            near = get_close_matches(plan, plans, 1)
            remedy = f"did you mean {near[0]!r}?" if near else "write it in limits.plans"
            yield Contradiction((section, name, "plan"), f"{plan!r} is no plan; {remedy}", needed=(("plans", plan),))
            continue
        keys = plans[plan] if isinstance(plans[plan], Mapping) else getattr(plans[plan], "model_fields_set", ())
        foreign = sorted((Plan.model_fields.keys() & set(keys)) - model.model_fields.keys())
        if foreign:
            text = f"the plan {plan!r} has {', '.join(foreign)}, which tenants do not have: give it to namespaces"
            yield Contradiction((section, name, "plan"), text, needed=(("plans", plan),))


def _occurring_twice(section: str, names: Iterable[Any], full: Callable[[Any], str]) -> _Contradictions:
    seen: dict[str, str] = {}
    for name in filter(_is_text, names):
        with suppress(ValueError):
            named = full(name)
            if seen.setdefault(named, name) != name:
                text = f"{name!r} names {named!r}, which occurs here twice"
                yield Contradiction((section, name), text, ((section, seen[named]),))


def _full_topic(name: str) -> str:
    return name if "://" in name else parse_topic(name).full


def _of_groups(groups: Mapping[str, Any]) -> _Contradictions:
    attached: dict[str, tuple[str, str]] = {}
    for group, section in groups.items():
        for key in ("tenants", "namespaces"):
            names = section.get(key) if isinstance(section, Mapping) else getattr(section, key, ())
            for name in filter(_is_text, names if isinstance(names, (list, tuple)) else ()):
                other, other_key = attached.setdefault(name, (group, key))
                if other != group:
                    text = f"{name!r} is attached to {other!r} and to {group!r}: leave one out"
                    beside = (("resource_groups", other, other_key),)
                    yield Contradiction(("resource_groups", group, key), text, beside)


def kept_name(section: str, name: str) -> str:
    """Return the name in a section of `limits` as it is kept; names that are none stay as they are."""
    kept = _KEPT_NAMES.get(section)
    with suppress(ValueError):
        return name if kept is None else kept(name)
    return name


_KEPT_NAMES: Mapping[str, Callable[[Any], str]] = {"topics": _full_topic, "addresses": network_name}
"""The sections whose names may be written in several ways."""


class Limits(create_model("_Limits", __base__=ConfigSection, **_sections())):  # type: ignore[misc]
    """All limits; they apply at once. Only a topic's own value, its namespace's and `each_topic` replace each other.

    Topics of Pulsar's own are under `exempt` alone.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _contradict_nothing(cls, written: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        contradictions = _contradictions(written) if isinstance(written, Mapping) else ()
        return without_contradictions(contradictions, lambda: read(written))

    @field_validator("topics")
    @classmethod
    def _whole_names(cls, value: dict[str, TopicLimits]) -> dict[str, TopicLimits]:
        return {_full_topic(name): limits for name, limits in value.items()}


_SYSTEM_NAMESPACE = "pulsar/system"


def _empty_sections(limits: Limits) -> Iterator[tuple[str, str, str]]:
    for path, sections in (("plans", limits.plans), ("tenants", limits.tenants), ("namespaces", limits.namespaces)):
        for name, section in sections.items():
            if not section.model_fields_set:
                yield path, name, "limits nothing; write its limits, or take it out"


def doubtful_names(limits: Limits) -> Iterator[tuple[Place, str]]:
    """Yield a warning for each name whose limits no stream may ever have, and for each plan that is given to none.

    The place of the name comes first, and the warning begins with it.
    """
    for section, name, warning in _doubtful(limits):
        yield ("limits", section, name), f"limits.{section}.{name}: {warning}"


def _doubtful(limits: Limits) -> Iterator[tuple[str, str, str]]:
    given = {section.plan for section in (*limits.tenants.values(), *limits.namespaces.values())}
    for plan in limits.plans:
        if plan not in given:
            yield "plans", plan, "no tenant and no namespace has this plan"
    yield from _empty_sections(limits)
    patterned = " and ".join(f"limits.{section}" for section in _SECTIONS_OF_PATTERNS)
    for key, part in (("topics", "local name"), ("producers", "name"), ("roles", "name")):
        for name in getattr(limits, key):
            if EACH in name and name != EACH:
                text = f"this is no pattern: it is for the one whose {part} has a *; patterns are for {patterned}"
                yield key, name, text
    for name in limits.namespaces:
        if name == _SYSTEM_NAMESPACE:
            yield "namespaces", name, "its topics are exempt from all limits but limits.exempt"
    for name, group in limits.resource_groups.items():
        if not group.tenants and not group.namespaces:
            yield "resource_groups", name, "no tenant and no namespace is attached to it here"
