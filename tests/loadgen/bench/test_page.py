from loadgen.bench import page
from loadgen.bench.table import MARKS
from loadgen.bench_limits.table import put_between


def test_the_section_holds_the_table_what_was_lost_and_who_is_absent():
    text = page.section("| a table |", ["somebody lost some"], {"HAProxy": "install it"}, 40)
    assert "| a table |" in text
    assert "- somebody lost some" in text
    assert "Not measured: HAProxy: install it." in text
    assert "is 40 lines of uvloop" in text


def test_without_losses_it_says_so():
    assert "Nobody lost a frame." in page.section("", [], {}, 40)


def test_it_replaces_itself_and_nothing_else():
    old = put_between("# Benchmarks\n\nmore\n", MARKS, "old")
    assert put_between(old, MARKS, "new") == old.replace("old", "new")
