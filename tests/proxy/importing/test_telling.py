"""The report of an import, beside its result."""

from proxy.config.showing import TakenValue
from proxy.importing.result import ImportResult, LeftOut, report_lines

FOUND = ImportResult(
    taken=[TakenValue(("max_connections",), 7, "")],
    notes=["look"],
    left=[LeftOut("b=1", "why"), LeftOut("c=2", "other"), LeftOut("d=3", "why")],
    off=["z", "y"],
    others=["x"],
    switch_off=["pulsar-admin …"],
    by_hand=["by hand"],
)


def test_everything_has_its_heading_and_what_is_left_stands_by_reason() -> None:
    assert list(report_lines(FOUND, verbose=False)) == [
        "1 value taken over",
        "worth a look:",
        "  look",
        "limits at the broker, and has no place here:",
        "  why:",
        "    b=1",
        "    d=3",
        "  other:",
        "    c=2",
        "2 keys about limits set to none (--verbose names them)",
        "1 key not about limits (--verbose names them)",
        "once all clients come through Sluice, these end the limits at the broker:",
        "  pulsar-admin …",
        "and this, by hand:",
        "  by hand",
    ]


def test_verbose_names_the_other_keys() -> None:
    lines = list(report_lines(FOUND, verbose=True))
    at = lines.index("2 keys about limits set to none:")
    assert lines[at + 1 : at + 5] == ["  y", "  z", "1 key not about limits:", "  x"]


def test_nothing_found_is_one_line() -> None:
    assert list(report_lines(ImportResult(), verbose=True)) == ["0 values taken over"]
