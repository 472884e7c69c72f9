"""What the user sees while the job works."""

from types import TracebackType
from typing import Any, Self

from rich.console import Console

from compliance.stream.late import Late
from compliance.stream.summary import Summary


class Progress:
    """One line that changes; where standard error is no terminal, nothing.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self._status = console.status("looking for new lines")
        self._summary: Summary | None = None
        self._batches = 0
        self._rate = 0.0

    def __enter__(self) -> Self:
        """Begins to draw."""
        self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stops drawing."""
        self._status.stop()

    def on_summary(self, summary: Summary) -> None:
        """After each batch."""
        self._summary = summary
        self._batches += 1
        self._draw()

    def on_look(self, progress: Any) -> None:
        """Now and then; `progress` is Spark's own of the last batch, or None."""
        if progress is not None:
            self._rate = progress.processedRowsPerSecond or self._rate
        self._draw()

    @property
    def late(self) -> Late:
        """As the last batch has it; nothing without a batch."""
        return self._summary.late if self._summary else {}

    def last_words(self, out: str) -> str:
        """What is printed at the end."""
        if self._summary is None:
            return f"nothing new; {out}/summary.json says what there is"
        return f"{_words(self._summary)}\n{out}/summary.json"

    def _draw(self) -> None:
        if self._summary is not None:
            self._status.update(f"{_words(self._summary)}; {self._rate:,.0f} lines/s, batch {self._batches}")


def _words(summary: Summary) -> str:
    late = max(summary.late.values(), default=0)
    counted = {"malformed": summary.malformed, "twice": summary.duplicates, "missing": summary.missing}
    counted |= {"declared lost": summary.lost, "late": late}
    troubles = "".join(f", {number:,} {what}" for what, number in counted.items() if number)
    return f"{summary.lines:,} lines{troubles}; complete up to {summary.complete_up_to or 'no heartbeat yet'}"
