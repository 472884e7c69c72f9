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


def cut_off(place):
    place.write_bytes(place.read_bytes()[:-40])


def overwrite(place):
    place.write_bytes(b"no days")


def replace_by_a_folder(place):
    place.unlink()
    place.mkdir()


@pytest.mark.slow
def test_only_days_that_changed_are_read_and_judged_again(made, worked, tmp_path):
    files = files_of(three_days())
    late = next(name for name in files if name.endswith("late"))
    for day in (DAYS[0], DAYS[1]):
        write_file(tmp_path / "log", f"{day}.jsonl", files[day])
    first = made("out")
    assert worked() == (DAYS[:2], DAYS[:2])
    assert kept_in(tmp_path) == [f"{day}.{kind}" for day in DAYS[:2] for kind in ("judged", "sums")]
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


def test_a_kept_day_that_is_damaged_or_gone_is_made_again(made, worked, tmp_path):
    for name, lines in files_of(three_days()).items():
        write_file(tmp_path / "log", f"{name}.jsonl", lines)
    first = made("out")
    worked()
    for damage in (cut_off, overwrite, replace_by_a_folder):
        for name in (f"{DAYS[0]}.sums", f"{DAYS[1]}.judged"):
            (place,) = tmp_path.glob(f"out/work/*/_work/judged/{name}")
            damage(place)
        assert made("out") == first
        assert worked() == ([DAYS[0]], [DAYS[1]]), damage
