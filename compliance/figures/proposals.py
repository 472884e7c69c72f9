"""Proposed limits, read from a YAML file: what `sluice report --what-if` replays over the log."""

import re
import stat
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from compliance.figures.levels import LEVELS

MOST_PROPOSALS = 100
_MOST_BYTES = 1024 * 1024
DEFAULT_BURST_S = 0.1
"""A tenth of a second's worth, Sluice's own default."""
_LONGEST_SHOWN = 100
_BELONGS = {
    "float": "a number of messages or bytes per second, as 80 or 0.5 (30 a minute are 0.5),",
    "str": "text (put it in quotes)",
    "array": "a list of proposed limits, as [{level: topic, messages: 80}],",
    "object": "a section of keys, as {level: topic, messages: 80},",
}
"""By msgspec's words for what was expected."""
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `(\w+)")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class ProposalError(Exception):
    """The file of proposed limits cannot be used, for a reason that its author can mend."""


class Proposal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One proposed limit. Each name that fits it has a limit of its own, on each proxy."""

    level: str
    """`proxy`, `tenant`, `namespace`, `resource_group`, `partitioned_topic`, `topic`, `subscription`, `producer`,
    `role` or `address`."""
    name: str = "*"
    """As in limit lines: a topic's full name, `tenant/namespace`, `producer@topic` …; `*` stands for any text."""
    direction: str = "publish"
    """`publish` or `dispatch`."""
    messages: float | None = None
    """Messages per second; null for no limit of messages."""
    bytes: float | None = None
    """Bytes per second."""
    burst_messages: float | None = None
    """Capacity of the bucket; null for a tenth of a second's worth."""
    burst_bytes: float | None = None


class Proposals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    limits: list[Proposal]


def _content(file: Path) -> bytes:
    found = file.stat()  # before it is opened: a FIFO would be waited for, and a device may have no end
    if not stat.S_ISREG(found.st_mode):
        raise ProposalError(f"--what-if {file}: is no regular file")
    if found.st_size > _MOST_BYTES:
        raise ProposalError(f"--what-if {file}: has {found.st_size} bytes, at most {_MOST_BYTES} are read")
    return file.read_bytes()


def read_proposals(file: Path) -> list[Proposal]:
    """The limits of a YAML file.

    Raises:
        ProposalError: If it cannot be read or does not fit; one line that names file, place and remedy.
    """
    try:
        said = msgspec.yaml.decode(_content(file))
        proposals = msgspec.convert(said, Proposals).limits
    except OSError as error:
        raise ProposalError(f"--what-if {file}: cannot be read: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise ProposalError(f"--what-if {file}: {_told(str(error), said)}") from error
    except msgspec.DecodeError as error:
        raise ProposalError(f"--what-if {file}: no YAML: {' '.join(str(error).split())}") from error
    if not 0 < len(proposals) <= MOST_PROPOSALS:
        raise ProposalError(f"--what-if {file}: limits: give 1 to {MOST_PROPOSALS}, not {len(proposals)}")
    for place, proposal in enumerate(proposals):
        if fault := _fault(proposal):
            raise ProposalError(f"--what-if {file}: limits[{place}]: {fault}")
    return proposals


def _told(error: str, said: object) -> str:
    """Key, value and what belongs there, of what msgspec says of a file that is YAML."""
    what, _, where = error.partition(" - at `")
    place = where.rstrip("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    key = f"{place}: " if place else ""
    if unknown := _UNKNOWN.fullmatch(what):
        fields = (Proposal if place else Proposals).__struct_fields__
        return f"{key}{unknown[1]}: this key is not known here; known are {', '.join(fields)}"
    if missing := _MISSING.fullmatch(what):
        return f"{key}{missing[1]}: this key must be given here"
    expected = _EXPECTED.match(what)
    if not expected or expected[1] not in _BELONGS or where.startswith("key`"):
        return f"{key}{what}"
    return f"{key}{repr(_at(said, place))[:_LONGEST_SHOWN]}: {_BELONGS[expected[1]]} belongs here"


def _at(said: Any, place: str) -> Any:
    for number, key in _STEP.findall(place):
        said = said[int(number) if number else key]
    return said


def _fault(proposal: Proposal) -> str | None:
    if proposal.level not in LEVELS:
        return f"level: {proposal.level!r} is none of {', '.join(LEVELS)}"
    if proposal.direction not in ("publish", "dispatch"):
        return f"direction: {proposal.direction!r} is neither publish nor dispatch"
    if proposal.messages is None and proposal.bytes is None:
        return "messages and bytes: give at least one of them"
    numbers = ("messages", "bytes", "burst_messages", "burst_bytes")
    bad = [name for name in numbers if not (getattr(proposal, name) is None or 0 < getattr(proposal, name) < 1e15)]
    if bad:
        return f"{bad[0]}: give a number above 0 and below 1e15"
    lone = [
        unit for unit in ("messages", "bytes") if getattr(proposal, f"burst_{unit}") and not getattr(proposal, unit)
    ]
    return f"burst_{lone[0]}: there is no limit of {lone[0]} that it could be of" if lone else None
