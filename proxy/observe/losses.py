"""Which lines of the access log are lost and not yet said to be.

The writing thread and the event loop both add to it.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Cause = Literal["disk", "queue", "killed"]


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines of this run, or what is known of some that are not.

    Args:
        number: How many.
        first: `seq` of the first.
        last: `seq` of the last.
        since: When the first was to be written, nanoseconds since 1970.
        until: When the last was.
    """

    number: int
    first: int
    last: int
    since: int
    until: int

    def __add__(self, other: "Lines") -> "Lines":
        return Lines(
            self.number + other.number,
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.since, other.since),
            max(self.until, other.until),
        )

    def behind(self, number: int) -> "Lines":
        """Without so many at the beginning."""
        return replace(self, number=self.number - number, first=self.first + number)


@dataclass(frozen=True, slots=True)
class Loss:
    """What a `loss` line says; see `accesslog.process.LossLine` for the fields."""

    of_boot: str
    cause: Cause
    detail: str
    lost_lines: int | None
    first_seq: int
    last_seq: int | None
    since: int
    until: int


class Losses:
    """Sums up losses until they are declared: one sum for each cause.

    Args:
        boot_id: Which run this is.
        of_killed: What earlier runs lost.

    Attributes:
        total: Lines of this run that are lost, declared or not.
    """

    def __init__(self, boot_id: str, of_killed: Iterable[Loss] = ()) -> None:
        self.total = 0
        self._boot_id = boot_id
        self._of_killed = list(of_killed)
        self._own: dict[Cause, tuple[Lines, str]] = {}
        self._lock = threading.Lock()

    def lose(self, cause: Cause, lines: Lines, detail: str = "") -> None:
        """These lines will not reach a reader."""
        with self._lock:
            self.total += lines.number
            self._add(cause, lines, detail)

    @property
    def are_declared(self) -> bool:
        """Whether the log says of each line of this run that is lost."""
        with self._lock:
            return not self._own

    def take(self) -> list[Loss]:
        """What is to be declared; whoever takes it gives it back if that is lost, too."""
        with self._lock:
            taken = self._of_killed + [self._loss(cause, *lost) for cause, lost in self._own.items()]
            self._of_killed, self._own = [], {}
        return taken

    def give_back(self, losses: Iterable[Loss]) -> None:
        """The lines that declared these are lost."""
        with self._lock:
            for loss in losses:
                if loss.lost_lines is None or loss.last_seq is None:
                    self._of_killed.append(loss)
                else:
                    lines = Lines(loss.lost_lines, loss.first_seq, loss.last_seq, loss.since, loss.until)
                    self._add(loss.cause, lines, loss.detail)

    def _add(self, cause: Cause, lines: Lines, detail: str) -> None:
        before = self._own.get(cause)
        self._own[cause] = (lines, detail) if before is None else (before[0] + lines, detail)

    def _loss(self, cause: Cause, lines: Lines, detail: str) -> Loss:
        return Loss(self._boot_id, cause, detail, lines.number, lines.first, lines.last, lines.since, lines.until)
