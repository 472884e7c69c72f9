from bench.compliance_job import BARE, JOB, log_row, text
from bench.harness import WIDTH, shown


def test_the_table_has_both_readings_and_their_ratio():
    found = {"1000": {BARE: [{"seconds": 10.0, "rate": 100.0}], JOB: [{"seconds": 16.0, "rate": 62.5}]}}
    table = shown([log_row(1000)], found)
    assert "**a log of 1,000 lines**" in table
    assert "| time | 10.0 s | 16.0 s |" in " ".join(table.split())
    assert "- time: 1.60 x bare Spark **missed** (≤ 0.33)" in table


def test_the_section_fits_the_page():
    assert max(map(len, text("| a table |", {}).splitlines())) <= WIDTH
