"""What the parts of a batch are told before they read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from compliance.stream.piece import Block
from compliance.stream.seen import Seen


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a batch.

    Args:
        seen: Numbers of the batches before.
        parts: Numbers that other parts have; a line that several have belongs to the first of them.
        above: Of blocks of files how many lines stand above them.
        again: Parts that are to be read; None: all.
    """

    seen: Seen = field(default_factory=Seen)
    parts: Mapping[int, Seen] = field(default_factory=dict)
    above: Mapping[Block, int] = field(default_factory=dict)
    again: frozenset[int] | None = None

    def before(self, part: int) -> Seen:
        """Numbers that are copies in a part."""
        return self.seen.union(*(seen for number, seen in self.parts.items() if number < part))

    def wants(self, part: int) -> bool:
        """Whether a part is to be read."""
        return self.again is None or part in self.again
