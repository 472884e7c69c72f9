"""A limiter's own value, against the changes of its settings."""

from collections import deque
from collections.abc import Sequence

from compliance.judging.changes import SettingChange
from compliance.judging.facts import LastLine
from compliance.judging.lines import CONTIGUOUS_US, Line


class ChangeWatch:
    """Finds a limit that goes on as before although a setting of its own has another value.

    With many changes at once, each limiter's line ends when its own value changes: so a line that begins at a change
    decides nothing yet.

    Args:
        values: The changes that may be of the limiter's own value, ascending.
    """

    def __init__(self, values: Sequence[SettingChange]) -> None:
        self._values = values
        self._pending = deque(values)
        """Changes that no line has decided."""
        self._was: Line | None = None
        """The last line before the first of them."""

    def contradicted(self, line: Line, before: Line | None) -> Sequence[str]:
        """Look at the next line, given with the one before; return the changes that it contradicts, in words."""
        pending = self._pending
        if not pending:
            return ()
        contradictions: list[str] = []
        while pending and not line.is_before(pending[0]):
            change, was = pending[0], self._was
            if line.begins_at(change):
                return contradictions
            pending.popleft()
            if pending and before and before.is_before(pending[0]):
                self._was = before
            # Of two changes of one setting between the two lines, the second one may have undone the first.
            own = [other for other in self._values if other.setting == change.setting]
            is_only = was and not any(was.seq < other.seq < line.seq for other in own if other is not change)
            if was and is_only and was.value == line.value and change.is_in_vain(line.source, *line.rates[:2]):
                contradictions.append(f"{change.text}, and its next line still has the old value")
        if pending:
            self._was = line
        return contradictions


def removed_us(values: Sequence[SettingChange], last: LastLine | None) -> int | None:
    """Return the time at which a limit lost its value, after its last line; None if it has one at the end.

    Args:
        values: As `ChangeWatch`.
        last: The limiter's last line.
    """
    removed_us = None
    for change in values if last else ():
        # The last line ends at the change, or earlier if no stream used the limit.
        if last and change.at_us >= last.end_us - CONTIGUOUS_US:
            removed_us = change.at_us if change.removes(last.source) else None
    return removed_us
