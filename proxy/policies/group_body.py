"""A resource group's rates as they are kept: in Pulsar's form, or each direction in Sluice's own.

{"publishRateInMsgs": 500, …}                                 Pulsar's: all four rates
{"form": "sluice", "body": {"publish": {"messages": 500}}}    own: the file's value holds where there is no key;
                                                              null limits nothing, whatever the file says
"""

from typing import Any, Literal

import msgspec

from limiter.levels import Setting
from limiter.rates import Direction, Limit, Rate
from proxy.policies.bodies import ResourceGroup, kept_as_own, limit_of, read_body
from proxy.policies.key import rate_key

DIRECTIONS: tuple[Direction, ...] = ("publish", "dispatch")
OwnGroup = dict[Direction, dict[str, Any] | None]
"""The own form's body."""


class _Own(msgspec.Struct, frozen=True):
    form: Literal["sluice"]
    body: OwnGroup


class _Form(msgspec.Struct, frozen=True):
    form: str | None = None


def group_limits(name: str, kept: str) -> dict[Direction, Limit]:
    """The limits that a kept group says; of a direction that is not there, it says nothing.

    Raises:
        BodyError: If it is none.
    """
    own = own_group(kept)
    if own is None:
        return dict(read_body(kept, ResourceGroup).limits())
    return {direction: _limit(name, direction, section) for direction, section in own.items()}


def own_group(kept: str) -> OwnGroup | None:
    """The body of a kept group that has Sluice's own form.

    Raises:
        BodyError: If it is no group at all.
    """
    if read_body(kept, _Form).form is None:
        return None
    return read_body(kept, _Own).body


def kept_as_own_group(body: OwnGroup) -> str:
    """The own form, as the store keeps it."""
    return msgspec.json.encode(_Own("sluice", body)).decode()


def pulsar_group(limits: dict[Direction, Limit | None]) -> ResourceGroup:
    """What Pulsar's tools are to see of a group that they did not write: always per second."""
    found = [limits.get(direction) or Limit() for direction in DIRECTIONS]
    return ResourceGroup(*(_per_second(rate) for limit in found for rate in (limit.messages, limit.size)))


def _limit(name: str, direction: Direction, section: dict[str, Any] | None) -> Limit:
    if section is None:
        return Limit()
    return limit_of(rate_key(direction, Setting.RESOURCE_GROUP, name), kept_as_own(section))


def _per_second(rate: Rate | None) -> int | None:
    return None if rate is None else max(1, round(rate.per_second))
