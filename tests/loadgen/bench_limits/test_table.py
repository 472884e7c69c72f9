import pytest

from loadgen.bench_limits.figures import Figure, Goal
from loadgen.bench_limits.rows.row import Row
from loadgen.bench_limits.table import PageError, marks, missed, put_into, table


def row(*figures: Figure) -> Row:
    return Row("shares", "two share 1000/s", figures, lambda _stages: [])


BEGIN, END = marks("publish")
JAIN = Figure("jain", "Jain's index", digits=2, goal=Goal("≥", 0.99))
PART = Figure("part", "share", " %", 0)
ROWS = [row(JAIN, PART)]


def test_a_row_of_the_table_for_each_figure_and_columns_that_align():
    made = table(ROWS, {"shares": ({"jain": [0.59], "part": [92]}, {"jain": [1.0], "part": [50]})})
    assert made.splitlines() == [
        "| load             | figure       | broker's own | through Sluice | goal   |",
        "| ---------------- | ------------ | ------------ | -------------- | ------ |",
        "| two share 1000/s | Jain's index | 0.59         | 1.00 ✓         | ≥ 0.99 |",
        "|                  | share        | 92 %         | 50 %           |        |",
    ]


def test_a_goal_that_sluice_misses_is_seen_and_told():
    found = {"shares": ({"jain": [1.0]}, {"jain": [0.5]})}
    assert "| 0.50 **missed** |" in table(ROWS, found)
    assert missed(ROWS, found) == ["shares: Jain's index: 0.50, goal ≥ 0.99"]


def test_what_the_broker_misses_is_nobody_s_goal():
    assert missed(ROWS, {"shares": ({"jain": [0.1]}, {"jain": [1.0]})}) == []


def test_a_section_takes_the_place_of_the_one_before_and_leaves_the_rest():
    page = put_into("# Page\n\nfirst\n", "publish", "old")
    page = put_into(page + "\nlast\n", "publish", "new")
    assert page == f"# Page\n\nfirst\n\n{BEGIN}\nnew\n{END}\n\nlast\n"
    assert put_into(page, "publish", "new") == page


def test_each_section_has_its_own_place():
    page = put_into(put_into("", "publish", "one"), "dispatch", "two")
    assert put_into(put_into(page, "publish", "one"), "dispatch", "two") == page
    assert page.index("one") < page.index(marks("dispatch")[0]) < page.index("two")
    assert put_into(page, "dispatch", "three").count("one") == 1


def test_a_page_that_is_not_there_yet_gets_a_title():
    assert put_into("", "publish", "text") == f"# Benchmarks\n\n{BEGIN}\ntext\n{END}\n"


@pytest.mark.parametrize("mark", [BEGIN, END])
def test_a_page_with_one_mark_only_is_refused(mark):
    with pytest.raises(PageError, match="only one of the lines"):
        put_into(f"# Page\n{mark}\n", "publish", "text")
