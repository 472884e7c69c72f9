"""A policy set as JSON, between a proxy and the commands that ask it."""

from typing import Any

import msgspec

from limiter.levels import About, Setting
from limiter.policies import Value
from proxy.policies.bodies import kept_as_own, limit_of
from proxy.policies.key import rate_key
from proxy.policies.policy_set import Attached, Member, PolicySet
from proxy.policies.sections import section_of


class SetLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit at a place; `limit` is a section of the configuration."""

    direction: About
    setting: Setting
    name: str
    limit: dict[str, Any]
    origin: str


class SetAttachment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resource group of a tenant or namespace."""

    member: Member
    name: str
    group: str
    origin: str


class Exchanged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of them."""

    limits: tuple[SetLimit, ...]
    attached: tuple[SetAttachment, ...]
    groups: tuple[str, ...]
    lasting: tuple[str, ...] = ()


def encoded(policies: PolicySet) -> bytes:
    """The set as JSON."""
    limits = tuple(
        SetLimit(*place, limit=dict(section_of(place[0], value.limit)), origin=value.origin)
        for place, value in policies.values.items()
    )
    attached = tuple(SetAttachment(*name, one.group, one.origin) for name, one in policies.attached.items())
    return msgspec.json.encode(Exchanged(limits, attached, (*policies.groups,), (*policies.lasting,)))


def decoded(text: bytes) -> PolicySet:
    """The set that `encoded` wrote.

    Raises:
        msgspec.DecodeError: If it is none.
        BodyError: If a limit in it is none.
    """
    said = msgspec.json.decode(text, type=Exchanged)
    values = {
        (one.direction, one.setting, one.name): Value(
            limit_of(rate_key(one.direction, one.setting, one.name), kept_as_own(one.limit)), one.origin
        )
        for one in said.limits
    }
    attached = {(one.member, one.name): Attached(one.group, one.origin) for one in said.attached}
    return PolicySet(values, attached, frozenset(said.groups), frozenset(said.lasting))
