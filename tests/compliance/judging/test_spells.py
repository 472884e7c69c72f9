from datetime import timedelta

from compliance.judging.facts import Spelling, together
from tests.compliance.judging.facts_made import spells
from tests.compliance.planted import BEGIN


def spelled(*seconds):
    """Lines one behind the other; those below 0 kept the promise."""
    spelling, clock_us = Spelling(), 0
    for lasts in seconds:
        spelling.add(clock_us, abs(lasts), is_broken=lasts > 0)
        clock_us += round(abs(lasts) * 1e6)
    return spelling


def test_lines_without_one_in_between_are_one_spell():
    spelling = spelled(-3, 1, 1, 0.5, -1, 2, -1)
    assert (spelling.times, spelling.seconds, spelling.first_us) == (2, 4.5, 3_000_000)
    assert (spelling.longest_us, spelling.longest_s) == (3_000_000, 2.5)


def test_the_longest_may_be_a_later_one():
    spelling = spelled(1, -1, 2, 2)
    assert (spelling.first_us, spelling.longest_us, spelling.longest_s) == (0, 2_000_000, 4)


def test_without_a_broken_line_there_is_none():
    assert spelled(-1, -1).times == 0
    assert together([None, None]) is None


def test_runs_are_one_account():
    later = BEGIN + timedelta(hours=1)
    both = together([spells(2.0, first=later, longest=later), None, spells(1.0)])
    assert both == spells(3.0, times=2, longest=later, longest_s=2.0)
