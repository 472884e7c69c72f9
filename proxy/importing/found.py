"""What an import found, before anything is written: values taken over, and what has no place."""

from dataclasses import dataclass, field

from proxy.config.yaml_text import Taken


@dataclass(frozen=True, slots=True)
class Left:
    """Something that limits at the broker and was not taken over.

    Args:
        what: Where it stands, its key and its value.
        why: The reason, and what to do instead if there is something.
    """

    what: str
    why: str


@dataclass(slots=True)
class Found:
    """Everything that there is to tell; it fills while a source is read."""

    taken: list[Taken] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was taken over and means something slightly different here, or deserves a look."""
    left: list[Left] = field(default_factory=list)
    off: list[str] = field(default_factory=list)
    """Keys about limits that are off at the broker, too."""
    others: list[str] = field(default_factory=list)
    """Keys that are not about limits."""
    switch_off: list[str] = field(default_factory=list)
    """Commands that end the limits at the broker."""
    by_hand: list[str] = field(default_factory=list)
    """Lines that end limits there for which there is no command."""


class ImportFailed(Exception):
    """Nothing can be imported; `problems` says everything that is wrong, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
