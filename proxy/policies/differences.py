"""Where two policy sets are not the same."""

from collections.abc import Iterator
from dataclasses import dataclass

from limiter.policies import Value
from proxy.policies.layers import Place
from proxy.policies.policy_set import PolicySet, limit_at, path_of
from proxy.policies.sections import section_of, section_text


@dataclass(frozen=True, slots=True)
class Difference:
    """One of them.

    Args:
        key: The configuration's.
        wanted: What the file says; empty for nothing.
        held: What is in force; empty for nothing.
        origin: Where that was written.
    """

    key: str
    wanted: str
    held: str
    origin: str


def differences(wanted: PolicySet, held: PolicySet) -> Iterator[Difference]:
    """What is not the same: limits by their keys, then attachments, then resource groups without either."""
    for place in sorted(wanted.values.keys() | held.values.keys()):
        if limit_at(wanted, place) != limit_at(held, place):
            found = held.values.get(place)
            said = wanted.values.get(place)
            yield Difference(
                ".".join(path_of(place)), _text(place, said), _text(place, found), found.origin if found else ""
            )
    for member, name in sorted(wanted.attached.keys() | held.attached.keys()):
        said_group, found_group = wanted.attached.get((member, name)), held.attached.get((member, name))
        groups = said_group.group if said_group else "", found_group.group if found_group else ""
        if groups[0] != groups[1]:
            yield Difference(
                f"resource group of {member} {name}", *groups, origin=found_group.origin if found_group else ""
            )
    used = wanted.used_groups() | held.used_groups()
    for group in sorted((wanted.groups ^ held.groups) - held.lasting):
        if group not in used:
            there, here = ("there", "") if group in wanted.groups else ("", "there")
            yield Difference(f"limits.resource_groups.{group}", there, here, "")


def _text(place: Place, value: Value | None) -> str:
    return section_text(section_of(place[0], value.limit)) if value else ""
