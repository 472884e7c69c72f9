"""Reports on a log that grows: days that have not changed are loaded, and the report is that of one made anew."""

import pytest

from tests.compliance.days import DAYS, files_of, three_days
from tests.compliance.planted import write_file

pytestmark = pytest.mark.spark


@pytest.fixture
def made(reported):
    """Make the report of the log in a folder."""
    return lambda out: reported("--access-log", out)


def kept_in(folder):
    return sorted(path.name for path in folder.glob("out/work/*/_work/judged/*"))


@pytest.mark.slow
def test_only_days_that_changed_are_read_and_judged_again(made, worked, tmp_path):
    files = files_of(three_days())
    late = next(name for name in files if name.endswith("late"))
    for day in (DAYS[0], DAYS[1]):
        write_file(tmp_path / "log", f"{day}.jsonl", files[day])
    first = made("out")
    assert worked() == (DAYS[:2], DAYS[:2])
    assert kept_in(tmp_path) == [f"{day}.{what}" for day in DAYS[:2] for what in ("judged", "sums")]
    assert made("out") == first
    assert worked() == ([], [])
    write_file(tmp_path / "log", f"{DAYS[2]}.jsonl", files[DAYS[2]])
    grown = made("out")
    assert worked() == ([DAYS[2]], DAYS[1:]), "the first minute of a day may end lines of the day before"
    assert grown == made("anew")
    worked()
    write_file(tmp_path / "log", f"{late}.jsonl", files[late])
    whole = made("out")
    assert worked() == ([DAYS[1]], DAYS), "balances go on from day to day, and a gap concerns the day before it, too"
    assert whole == made("another")
    worked()
    assert (first["quality"]["missing"], whole["quality"]["missing"]) == (10, 0)
    assert made("out") == whole
    assert worked() == ([], [])


@pytest.mark.parametrize("damage", [b"", b"no days", None])
def test_a_kept_day_that_is_damaged_or_gone_is_made_again(made, worked, tmp_path, damage):
    for name, lines in files_of(three_days()).items():
        write_file(tmp_path / "log", f"{name}.jsonl", lines)
    first = made("out")
    for name in (f"{DAYS[0]}.sums", f"{DAYS[1]}.judged"):
        (place,) = tmp_path.glob(f"out/work/*/_work/judged/{name}")
        if damage is None:
            place.unlink()
            place.mkdir()
        else:
            place.write_bytes(damage or place.read_bytes()[:-40])
    worked()
    assert made("out") == first
    assert worked() == ([DAYS[0]], [DAYS[1]])
