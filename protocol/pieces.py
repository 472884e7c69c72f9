"""What the scanner finds in a chunk: sums by producer or consumer, or the frames one by one."""

from typing import Final

from mypy_extensions import i64, mypyc_attr

TAIL: Final = 0
"""The `kind` of a piece that continues the frame of the chunk before."""


@mypyc_attr(acyclic=True)
class Tally:
    """What one producer or consumer has in one chunk.

    `size` counts everything behind the command, in bytes: what the broker meters.
    """

    __slots__ = ("entries", "largest_messages", "largest_size", "messages", "owner", "size")

    def __init__(self, owner: int) -> None:
        self.owner: int = owner
        self.entries: i64 = 0
        self.messages: i64 = 0
        self.size: i64 = 0
        self.largest_messages: i64 = 0
        self.largest_size: i64 = 0

    def add(self, entries: i64, messages: i64, size: i64) -> None:
        """Count so many entries, each of so many messages and bytes."""
        self.entries += entries
        self.messages += entries * messages
        self.size += entries * size
        if messages > self.largest_messages:
            self.largest_messages = messages
        if size > self.largest_size:
            self.largest_size = size

    def clear(self) -> None:
        """Forget everything but the owner."""
        self.entries = 0
        self.messages = 0
        self.size = 0
        self.largest_messages = 0
        self.largest_size = 0


def tally_of(owner: int, tallies: list[Tally], known: dict[int, Tally]) -> Tally:
    """The owner's own among `tallies`, put there if it is the first time; `known` are kept to be used again."""
    tally = known.get(owner)
    if tally is None:
        tally = known[owner] = Tally(owner)
    if tally.entries == 0:
        tallies.append(tally)
    return tally


def clear(tallies: list[Tally], known: dict[int, Tally], most: i64) -> None:
    """Begin a new chunk; more than `most` tallies are not kept to be used again."""
    for tally in tallies:
        tally.clear()
    tallies.clear()
    if len(known) > most:
        known.clear()


@mypyc_attr(acyclic=True)
class Piece:
    """One frame, or the part of one that a chunk holds: `data[start:stop]`.

    `kind` is the command's type, or TAIL. `owner`, `messages` and `size` are set for payload frames, `command_end` (the
    command begins HEAD bytes behind `start`) for all but tails. `whole` says that the frame ends with this piece.
    """

    __slots__ = ("command_end", "kind", "messages", "owner", "size", "start", "stop", "whole")

    def __init__(self, kind: int, start: int, stop: int, *, whole: bool) -> None:
        self.kind: int = kind
        self.start: int = start
        self.stop: int = stop
        self.whole: bool = whole
        self.owner: int = -1
        self.messages: int = 0
        self.size: int = 0
        self.command_end: int = 0
