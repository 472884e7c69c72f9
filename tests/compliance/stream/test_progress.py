import io
from typing import Any

from rich.console import Console

from compliance.stream.runs import Progress, Summary


def summary(**more):
    said: dict[str, Any] = {
        "complete_up_to": "2026-11-21T11:30:00Z",
        "watermark": "",
        "lines": 12345,
        "rows": 12000,
        "malformed": 0,
    }
    return Summary(
        **(said | {"duplicates": 0, "late": {}, "missing": 0, "losses": 0, "lost": 0, "gaps": [], "runs": []} | more)
    )


def progress():
    return Progress(Console(file=io.StringIO()))


def test_the_last_words_say_how_much_and_how_far():
    shown = progress()
    shown.on_summary(summary())
    assert shown.last_words("out") == "12,345 lines; complete up to 2026-11-21T11:30:00Z\nout/summary.json"


def test_troubles_are_counted_and_absent_ones_are_not_named():
    shown = progress()
    shown.on_summary(summary(malformed=3, missing=5, losses=1, lost=4, late={"1": 7, "10": 2}, complete_up_to=None))
    told = "12,345 lines, 3 malformed, 5 missing, 4 declared lost, 7 late; complete up to no heartbeat yet"
    assert shown.last_words("out").startswith(told)


def test_without_a_batch_there_was_nothing_new():
    assert progress().last_words("out").startswith("nothing new")
    assert progress().late == {}


def test_it_knows_what_was_late():
    shown = progress()
    shown.on_summary(summary(late={"1": 7}))
    assert shown.late == {"1": 7}


def test_a_terminal_is_told_while_the_job_works():
    drawn = io.StringIO()
    with Progress(Console(file=drawn, force_terminal=True, width=200)) as shown:
        shown.on_summary(summary())
        shown.on_look(None)
    assert "12,345 lines" in drawn.getvalue()
    assert "batch 1" in drawn.getvalue()
