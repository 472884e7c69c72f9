"""A resource group's rates as they are kept: in Pulsar's form, or each direction in Sluice's own.

{"publishRateInMsgs": 500, …}                                 Pulsar's: all four rates
{"form": "sluice", "body": {"publish": {"messages": 500}}}    own: the file's value holds where there is no key;
                                                              null limits nothing, whatever the file says
{…, "numbers": ["publish"]}                                   of these directions Pulsar's tools set numbers

Pulsar's numbers know no mode: where they are, the file's holds.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec

from limiter.levels import About, Setting
from limiter.rates import DIRECTIONS, Direction, Limit, Mode, Rate
from proxy.policies.bodies import MOST_BYTES, MOST_MESSAGES, ResourceGroup, kept_as_own, limit_of, read_body
from proxy.policies.key import rate_key

OwnGroup = dict[Direction, dict[str, Any] | None]
"""The own form's body."""


class KeptGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The own form.

    Args:
        form: Whose it is.
        body: What it says of each direction.
        numbers: The directions whose mode is the file's.
    """

    form: Literal["sluice"]
    body: OwnGroup
    numbers: tuple[Direction, ...] = ()


class _Form(msgspec.Struct, frozen=True):
    form: str | None = None


def group_limits(name: str, kept: str, modes: Mapping[About, Mode]) -> dict[About, Limit]:
    """The limits that a kept group says; of a direction that is not there, it says nothing.

    Args:
        name: The group's.
        kept: What is kept.
        modes: The file's, where they are not `enforce`.

    Raises:
        BodyError: If it is none.
    """
    own = own_group(kept)
    if own is None:
        found = read_body(kept, ResourceGroup).limits()
        return {direction: replace(limit, mode=modes.get(direction, "enforce")) for direction, limit in found.items()}
    return {direction: _limit(name, direction, own, modes.get(direction, "enforce")) for direction in own.body}


def own_group(kept: str) -> KeptGroup | None:
    """A kept group that has Sluice's own form.

    Raises:
        BodyError: If it is no group at all.
    """
    if read_body(kept, _Form).form is None:
        return None
    return read_body(kept, KeptGroup)


def kept_as_own_group(body: OwnGroup, numbers: tuple[Direction, ...] = ()) -> str:
    """The own form, as the store keeps it."""
    return msgspec.json.encode(KeptGroup("sluice", body, numbers)).decode()


def pulsar_group(limits: dict[Direction, Limit | None]) -> ResourceGroup:
    """What Pulsar's tools are to see of a group that they did not write: always per second."""
    found = [limits.get(direction) or Limit() for direction in DIRECTIONS]
    return ResourceGroup(
        *(
            _per_second(rate, most)
            for limit in found
            for rate, most in ((limit.messages, MOST_MESSAGES), (limit.size, MOST_BYTES))
        )
    )


def _limit(name: str, direction: Direction, own: KeptGroup, mode: Mode) -> Limit:
    section = own.body[direction]
    if section is None:
        return Limit()
    said = section | {"mode": mode} if direction in own.numbers else section
    return limit_of(rate_key(direction, Setting.RESOURCE_GROUP, name), kept_as_own(said))


def _per_second(rate: Rate | None, most: int) -> int | None:
    return None if rate is None else min(most, max(1, round(rate.per_second)))
