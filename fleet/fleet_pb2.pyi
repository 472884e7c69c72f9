from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGES: _ClassVar[Unit]
    BYTES: _ClassVar[Unit]
MESSAGES: Unit
BYTES: Unit

class Message(_message.Message):
    __slots__ = ("version", "fleet", "report", "grants")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    fleet: str
    report: Report
    grants: Grants
    def __init__(self, version: _Optional[int] = ..., fleet: _Optional[str] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., grants: _Optional[_Union[Grants, _Mapping]] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("tokens", "period_ns", "burst", "peak_tokens", "peak_period_ns", "peak_burst")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PERIOD_NS_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    PEAK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PEAK_PERIOD_NS_FIELD_NUMBER: _ClassVar[int]
    PEAK_BURST_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    period_ns: int
    burst: int
    peak_tokens: int
    peak_period_ns: int
    peak_burst: int
    def __init__(self, tokens: _Optional[int] = ..., period_ns: _Optional[int] = ..., burst: _Optional[int] = ..., peak_tokens: _Optional[int] = ..., peak_period_ns: _Optional[int] = ..., peak_burst: _Optional[int] = ...) -> None: ...

class Introduction(_message.Message):
    __slots__ = ("id", "limiter", "unit", "quota", "ppm")
    ID_FIELD_NUMBER: _ClassVar[int]
    LIMITER_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    PPM_FIELD_NUMBER: _ClassVar[int]
    id: int
    limiter: str
    unit: Unit
    quota: Quota
    ppm: int
    def __init__(self, id: _Optional[int] = ..., limiter: _Optional[str] = ..., unit: _Optional[_Union[Unit, str]] = ..., quota: _Optional[_Union[Quota, _Mapping]] = ..., ppm: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("member", "incarnation", "sequence", "since", "epoch", "seen", "leaving", "introductions", "ids", "used", "wanted", "streams", "gone", "written", "brokers", "sluice_version")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    INTRODUCTIONS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    SLUICE_VERSION_FIELD_NUMBER: _ClassVar[int]
    member: str
    incarnation: int
    sequence: int
    since: int
    epoch: int
    seen: int
    leaving: bool
    introductions: _containers.RepeatedCompositeFieldContainer[Introduction]
    ids: _containers.RepeatedScalarFieldContainer[int]
    used: _containers.RepeatedScalarFieldContainer[int]
    wanted: _containers.RepeatedScalarFieldContainer[int]
    streams: _containers.RepeatedScalarFieldContainer[int]
    gone: _containers.RepeatedScalarFieldContainer[int]
    written: Written
    brokers: _containers.RepeatedScalarFieldContainer[str]
    sluice_version: str
    def __init__(self, member: _Optional[str] = ..., incarnation: _Optional[int] = ..., sequence: _Optional[int] = ..., since: _Optional[int] = ..., epoch: _Optional[int] = ..., seen: _Optional[int] = ..., leaving: _Optional[bool] = ..., introductions: _Optional[_Iterable[_Union[Introduction, _Mapping]]] = ..., ids: _Optional[_Iterable[int]] = ..., used: _Optional[_Iterable[int]] = ..., wanted: _Optional[_Iterable[int]] = ..., streams: _Optional[_Iterable[int]] = ..., gone: _Optional[_Iterable[int]] = ..., written: _Optional[_Union[Written, _Mapping]] = ..., brokers: _Optional[_Iterable[str]] = ..., sluice_version: _Optional[str] = ...) -> None: ...

class Written(_message.Message):
    __slots__ = ("digest", "total")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    digest: int
    total: int
    def __init__(self, digest: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class LimitSet(_message.Message):
    __slots__ = ("written", "members", "names")
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    written: Written
    members: int
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, written: _Optional[_Union[Written, _Mapping]] = ..., members: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class VersionSet(_message.Message):
    __slots__ = ("version", "members", "names")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    version: str
    members: int
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., members: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("id", "quota")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    id: int
    quota: Quota
    def __init__(self, id: _Optional[int] = ..., quota: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("incarnation", "answers", "sequence", "void", "ids", "shares", "held")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VOID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    answers: int
    sequence: int
    void: bool
    ids: _containers.RepeatedScalarFieldContainer[int]
    shares: _containers.RepeatedScalarFieldContainer[int]
    held: _containers.RepeatedCompositeFieldContainer[Held]
    def __init__(self, incarnation: _Optional[int] = ..., answers: _Optional[int] = ..., sequence: _Optional[int] = ..., void: _Optional[bool] = ..., ids: _Optional[_Iterable[int]] = ..., shares: _Optional[_Iterable[int]] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ...) -> None: ...

class MemberStatus(_message.Message):
    __slots__ = ("name", "incarnation", "silent_ns", "limits", "has_twin", "sluice_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SILENT_NS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    HAS_TWIN_FIELD_NUMBER: _ClassVar[int]
    SLUICE_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    silent_ns: int
    limits: int
    has_twin: bool
    sluice_version: str
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., silent_ns: _Optional[int] = ..., limits: _Optional[int] = ..., has_twin: _Optional[bool] = ..., sluice_version: _Optional[str] = ...) -> None: ...

class Grants(_message.Message):
    __slots__ = ("coordinator", "epoch", "members", "grants", "sent_at", "limit_sets", "brokers", "sluice_version", "version_sets", "roster")
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_SETS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    SLUICE_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_SETS_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    coordinator: str
    epoch: int
    members: int
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    sent_at: int
    limit_sets: _containers.RepeatedCompositeFieldContainer[LimitSet]
    brokers: _containers.RepeatedScalarFieldContainer[str]
    sluice_version: str
    version_sets: _containers.RepeatedCompositeFieldContainer[VersionSet]
    roster: _containers.RepeatedCompositeFieldContainer[MemberStatus]
    def __init__(self, coordinator: _Optional[str] = ..., epoch: _Optional[int] = ..., members: _Optional[int] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., sent_at: _Optional[int] = ..., limit_sets: _Optional[_Iterable[_Union[LimitSet, _Mapping]]] = ..., brokers: _Optional[_Iterable[str]] = ..., sluice_version: _Optional[str] = ..., version_sets: _Optional[_Iterable[_Union[VersionSet, _Mapping]]] = ..., roster: _Optional[_Iterable[_Union[MemberStatus, _Mapping]]] = ...) -> None: ...
