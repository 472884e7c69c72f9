from bench.compliance_job import BEGIN, END, LogRow, placed, section

ROWS = [LogRow(1_000_000, 500_000_000, 10.0, 16.0), LogRow(4_000_000, 2_000_000_000, 40.0, 80.0)]


def test_the_table_has_the_ratio_and_the_growth():
    table = section(ROWS, "a machine").splitlines()
    assert "| 1,000,000 | 500 | 10.0 s | 16.0 s | 62,500 | 0.62 | 1.00 |" in table
    assert "| 4,000,000 | 2,000 | 40.0 s | 80.0 s | 50,000 | 0.50 | 1.25 |" in table
    head, rule = (line for line in table if line.startswith(("| lines", "|---")))
    assert head.count("|") == rule.count("|")


def test_the_section_is_put_at_the_end_once_and_then_in_its_own_place():
    first = placed("# Page\n", f"{BEGIN}\none\n{END}")
    assert first == f"# Page\n\n{BEGIN}\none\n{END}\n"
    again = placed(f"{first}more\n", f"{BEGIN}\ntwo\n{END}")
    assert again == f"# Page\n\n{BEGIN}\ntwo\n{END}\nmore\n"
