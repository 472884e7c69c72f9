import io
from typing import Any

from rich.console import Console

from compliance.stream.ledger import Summary
from compliance.stream.run import Progress


def summary(**more):
    values: dict[str, Any] = {"complete_up_to": "2026-11-21T11:30:00Z", "lines": 12345, "rows": 12000}
    values |= dict.fromkeys(("malformed", "duplicates", "missing", "losses", "lost"), 0)
    return Summary(**(values | {"days": [], "gaps": [], "runs": []} | more))


def test_the_last_words_say_how_much_and_how_far():
    shown = Progress(Console(file=io.StringIO()))
    shown.on_summary(summary())
    assert shown.last_words("out") == "12,345 lines; complete up to 2026-11-21T11:30:00Z\nout/summary.json"


def test_the_last_object_is_the_summary_and_its_place():
    shown = Progress(Console(file=io.StringIO()))
    shown.on_summary(summary())
    last_object = shown.last_object("out")
    assert (last_object["summary_file"], last_object["lines"], last_object["gaps"]) == ("out/summary.json", 12345, [])


def test_troubles_are_counted_and_absent_ones_are_not_named():
    shown = Progress(Console(file=io.StringIO()))
    shown.on_summary(summary(malformed=3, missing=5, losses=1, lost=4, complete_up_to=None))
    words = "12,345 lines, 3 malformed, 5 missing, 4 declared lost; complete up to no heartbeat yet"
    assert shown.last_words("out").startswith(words)


class FakeSpark:
    """A session whose only stage has done two of five tasks."""

    def __init__(self):
        self.sparkContext = self

    def statusTracker(self):  # noqa: N802 - Spark's name
        return self

    def getActiveStageIds(self):  # noqa: N802 - the same
        return [7]

    def getStageInfo(self, stage):  # noqa: N802 - the same
        assert stage == 7
        return self

    numCompletedTasks, numTasks = 2, 5  # noqa: N815 - the same


def test_terminal_shows_steps_and_tasks_done_and_cron_nothing():
    for is_terminal in (True, False):
        drawn = io.StringIO()
        with Progress(Console(file=drawn, force_terminal=is_terminal, width=200)) as shown:
            for act in (
                lambda: None,
                lambda shown=shown: shown.on_start(FakeSpark()),
                shown.on_look,
                lambda shown=shown: shown.on_step("adding up usage"),
                lambda shown=shown: shown.on_summary(summary()),
                shown.on_look,
            ):
                act()
                shown._status._live.refresh()
        words = ("starting Spark", "looking for new files", "2 of 5 tasks done", "adding up usage", "12,345 lines;")
        assert [word in drawn.getvalue() for word in words] == [is_terminal] * 5
